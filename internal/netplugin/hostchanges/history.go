package hostchanges

import (
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// Kind is what a change is of.
type Kind string

// The kinds of changes.
const (
	Infra   Kind = "infra"   // the host's interface on an infra network; objects are networks, as tenant:network
	Routes  Kind = "routes"  // to services and routed networks; objects are prefixes
	Learned Kind = "learned" // routes that were learned by BGP; objects are prefixes
	Mode    Kind = "mode"    // the forwarding mode; the object is the mode before
)

// State is what became of a change.
type State string

// The states of a change.
const (
	Applied    State = "applied"    // as it was made
	Reverting  State = "trial"      // rolled back, and no netmaster has answered since
	Reapplied  State = "tried"      // applied again, because no netmaster answered without it
	RolledBack State = "rolledBack" // rolled back, and a netmaster answered then
)

func (s State) suspended() bool { return s == Reverting || s == RolledBack }

// Change is a change of one kind.
type Change struct {
	Number  uint64   `json:"number"` // later changes have greater ones
	Kind    Kind     `json:"kind"`
	Objects []string `json:"objects"` // which were changed together
	State   State    `json:"state"`
}

// History owns the changes since a netmaster last answered, what is rolled back, and the path
// to netmasters then. Its methods are safe for concurrent use, and call nothing else with the
// lock held. A nil History notes nothing, and nothing is rolled back.
type History struct {
	// Noted rings after a change, for the goroutine that calls Save.
	Noted waiting.Bell

	path string
	log  *slog.Logger

	mu      sync.Mutex
	content content
	unsaved bool
}

// Open returns what the file of a state directory has. A file that cannot be used is
// ignored, which the log says.
func Open(dir string, log *slog.Logger) *History {
	h := &History{Noted: waiting.NewBell(), path: filepath.Join(dir, File), log: log}
	var err error
	if h.content, err = read(h.path); err != nil {
		log.Warn("the changes of this host's own networking before this start are not known: none of them is rolled back", "file", h.path, "error", err)
	}
	return h
}

// Note notes that objects of a kind were changed. A change that was applied again is none:
// it is not rolled back a second time before a netmaster has answered.
func (h *History) Note(kind Kind, objects ...string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	tried, noted := map[string]bool{}, map[string]bool{}
	for _, c := range h.content.Changes {
		if c.Kind == kind && c.State == Reapplied {
			for _, o := range c.Objects {
				tried[o] = true
			}
		}
	}
	var changed []string
	for _, o := range objects {
		if !tried[o] {
			changed, noted[o] = append(changed, o), true
		}
	}
	if len(changed) == 0 {
		return
	}
	h.remove(func(c Change, o string) bool { return c.Kind == kind && c.State == Applied && noted[o] })
	h.content.Changes = append(h.content.Changes, Change{Number: h.next(), Kind: kind, Objects: changed, State: Applied})
	h.alter()
}

// Keep forgets what is wanted no more.
func (h *History) Keep(kind Kind, wanted func(object string) bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(func(c Change, o string) bool { return c.Kind == kind && !wanted(o) })
}

// Suspended returns the objects that are rolled back.
func (h *History) Suspended(kind Kind) (out []string) {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.content.Changes {
		if c.Kind == kind && c.State.suspended() {
			out = append(out, c.Objects...)
		}
	}
	slices.Sort(out)
	return out
}

// SuspendedRoutes returns the routes that are rolled back.
func (h *History) SuspendedRoutes(kind Kind) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	for _, o := range h.Suspended(kind) {
		if p, err := netip.ParsePrefix(o); err == nil {
			out[p] = true
		}
	}
	return out
}

// NoteRoutes notes routes that were added together, and forgets routes that are wanted no
// more.
func (h *History) NoteRoutes(kind Kind, added []netip.Prefix, wanted func(netip.Prefix) bool) {
	var objects []string
	for _, p := range added {
		objects = append(objects, p.String())
	}
	h.Note(kind, objects...)
	h.Keep(kind, func(o string) bool {
		p, err := netip.ParsePrefix(o)
		return err == nil && wanted(p)
	})
}

// Newest returns the newest change that was neither rolled back nor tried.
func (h *History) Newest() (Change, bool) { return h.last(Applied) }

// PendingRevert returns the change that is rolled back while no netmaster has answered.
func (h *History) PendingRevert() (Change, bool) { return h.last(Reverting) }

func (h *History) last(s State) (Change, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range slices.Backward(h.content.Changes) {
		if c.State == s {
			return c, true
		}
	}
	return Change{}, false
}

// Set notes what becomes of a change.
func (h *History) Set(number uint64, s State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range h.content.Changes {
		if c.Number == number {
			h.content.Changes[i].State = s
			h.alter()
		}
	}
}

// Mark returns what Answered needs of the time when a netmaster is asked.
func (h *History) Mark() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next()
}

// Answered notes that a netmaster answered what was asked at a mark, by a path: the changes
// before did not cut it, and the one in state Trial did.
func (h *History) Answered(mark uint64, path map[netip.Addr]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.content.Path == nil || !maps.Equal(h.content.Path, path) {
		h.content.Path = path
		h.alter()
	}
	for i, c := range h.content.Changes {
		if c.State == Reverting {
			h.content.Changes[i].State = RolledBack
			h.alter()
		}
	}
	h.remove(func(c Change, _ string) bool { return !c.State.suspended() && c.Number < mark })
}

// Path returns the path to netmasters when one answered last; nil = none has.
func (h *History) Path() map[netip.Addr]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.content.Path // it is replaced, never changed
}

// The caller holds h.mu for the rest.

func (h *History) alter() {
	h.unsaved = true
	h.Noted.Ring()
}

func (h *History) next() uint64 {
	if n := len(h.content.Changes); n > 0 {
		h.content.Next = max(h.content.Next, h.content.Changes[n-1].Number+1)
	}
	return h.content.Next
}

// remove removes objects, and changes without any.
func (h *History) remove(is func(c Change, object string) bool) {
	for i, c := range h.content.Changes {
		left := slices.DeleteFunc(slices.Clone(c.Objects), func(o string) bool { return is(c, o) })
		if len(left) < len(c.Objects) {
			h.content.Changes[i].Objects = left
			h.alter()
		}
	}
	h.content.Changes = slices.DeleteFunc(h.content.Changes, func(c Change) bool { return len(c.Objects) == 0 })
}
