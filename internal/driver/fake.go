package driver

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Fake is a Driver that executes: it holds what was applied, refuses what a
// kernel would refuse, judges packets (Send) with a connection table of its
// own, and counts. It is the reference of what every driver must do. Its
// methods may be called from several goroutines.
type Fake struct {
	k      *fakeKernel
	events chan Event
	closed bool
	// pictures has judged the newest picture, which the kernel holds; nil when it
	// may not: the next one is compared with all that is there.
	pictures *pictures

	stopMonitor func() // nil until the first Monitor
}

// fakeKernel is what outlives a driver process: objects, connections, counters.
type fakeKernel struct {
	mu      sync.Mutex
	objects objects
	tables  *tables // indexes over objects
	conns   *conntrack
	ports   map[string]*PortStats
	rules   map[string]*RuleStats
	drops   map[string]uint64
	monitor *monitor // nil while nobody monitors

	hasIface func(name string) bool
	refuse   func(object string) error
	budget   int // writes left until Apply breaks off; negative = no limit
}

// objects are what a picture becomes in the data plane.
type objects struct {
	header   header
	networks map[model.NetworkID]*desired.Network
	sets     map[desired.PolicySetID]*desired.PolicySet
	remotes  map[desired.RemoteKey]*desired.Remote
	ports    map[string]*desired.Port
}

func noObjects() objects {
	return objects{
		networks: map[model.NetworkID]*desired.Network{},
		sets:     map[desired.PolicySetID]*desired.PolicySet{},
		remotes:  map[desired.RemoteKey]*desired.Remote{},
		ports:    map[string]*desired.Port{},
	}
}

var _ Driver = (*Fake)(nil)

// NewFake returns a Fake with an empty data plane.
func NewFake() *Fake {
	k := &fakeKernel{
		objects: noObjects(), conns: newConntrack(), ports: map[string]*PortStats{},
		rules: map[string]*RuleStats{}, drops: map[string]uint64{}, budget: -1,
	}
	k.tables = index(k.objects)
	return &Fake{k: k, events: make(chan Event, 16)}
}

// Restart closes f and returns a Fake that finds f's data plane as it is, as a
// restarted agent would.
func (f *Fake) Restart() *Fake {
	_ = f.Close() // cannot fail
	return &Fake{k: f.k, events: make(chan Event, 16)}
}

// Apply implements Driver.
func (f *Fake) Apply(ctx context.Context, want desired.Host) (Report, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	if f.closed {
		return Report{}, errors.New("apply: the driver is closed")
	}
	whole := !f.pictures.follows(want)
	if whole {
		f.pictures = newPictures(want)
	}
	same := !whole && !differ(want, f.pictures.want)
	t := f.pictures.next(want, f.k.hasIface, same)
	report := Report{Revision: want.Revision, Ports: f.pictures.status, Problems: f.pictures.problems()}
	complete, err := f.k.write(f.pictures, t, whole, &report)
	if f.k.budget = -1; !complete || err != nil {
		f.pictures = nil
	}
	return report, err
}

// differ tells whether two pictures do in an object.
func differ(a, b desired.Host) bool {
	for range a.Networks.Diff(b.Networks) {
		return true
	}
	for range a.PolicySets.Diff(b.PolicySets) {
		return true
	}
	for range a.Remotes.Diff(b.Remotes) {
		return true
	}
	for range a.Ports.Diff(b.Ports) {
		return true
	}
	return false
}

// Events implements Driver.
func (f *Fake) Events() <-chan Event { return f.events }

// Tables implements Tabled: they never evict.
func (f *Fake) Tables() map[string]TableStats {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	return map[string]TableStats{"conns": {Entries: uint64(len(f.k.conns.conns)), Evicts: true}}
}

// Stats implements Driver.
func (f *Fake) Stats(context.Context) (Stats, error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	s := Stats{Ports: map[string]PortStats{}, Rules: map[string]RuleStats{}, Drops: maps.Clone(f.k.drops)}
	for name, p := range f.k.objects.ports {
		var c PortStats
		if got := f.k.ports[name]; got != nil {
			c = *got
		}
		c.Endpoint = p.Endpoint
		s.Ports[name] = c
	}
	for id, r := range f.k.rules {
		s.Rules[id] = *r
	}
	return s, nil
}

// Close implements Driver.
func (f *Fake) Close() error {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.events)
		if f.stopMonitor != nil {
			f.stopMonitor()
			f.k.endMonitor(f.k.monitor)
		}
	}
	return nil
}

// Interfaces makes ports whose interface does not exist fail with
// model.ErrNotFound, as with a real data plane. nil: all exist. Apply asks for
// the interfaces of new ports and of those that had none, and for all of them
// when the picture is the one before, as a search for drift does.
func (f *Fake) Interfaces(exists func(name string) bool) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.hasIface, f.pictures = exists, nil
}

// Refuse makes the data plane refuse to write the objects for which fn returns
// an error, named as in Inspect ("port cv...", "network 3", "policy 17",
// "remote 3/02:02:..."). nil: none.
func (f *Fake) Refuse(fn func(object string) error) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.refuse = fn
}

// BreakAfter makes the next Apply break off with an error after n writes,
// leaving the data plane half done. Negative: not.
func (f *Fake) BreakAfter(n int) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.budget = n
}

// Lose empties the data plane, connections included, as when the switch
// process dies, and tells so by an event.
func (f *Fake) Lose(reason string) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.objects, f.k.conns = noObjects(), newConntrack()
	f.k.tables = index(f.k.objects)
	f.pictures = nil
	if f.closed {
		return
	}
	select {
	case f.events <- Event{Reason: reason}:
	default:
	}
}

// ForgetConnections empties the connection table.
func (f *Fake) ForgetConnections() {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.conns = newConntrack()
}
