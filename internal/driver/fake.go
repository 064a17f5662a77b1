package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	next, report := f.k.accept(want)
	changes, err := f.k.write(next, &report)
	f.k.budget = -1
	report.Changes = changes
	if changes > 0 {
		before := f.k.tables
		f.k.tables = index(f.k.objects)
		f.k.forgetGone(before)
	}
	return report, err
}

// Events implements Driver.
func (f *Fake) Events() <-chan Event { return f.events }

// Tables implements Tabled: they never evict.
func (f *Fake) Tables() map[string]TableStats {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	return map[string]TableStats{"conns": {Entries: uint64(len(f.k.conns.conns))}}
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
// model.ErrNotFound, as with a real data plane. nil: all exist.
func (f *Fake) Interfaces(exists func(name string) bool) {
	f.k.mu.Lock()
	defer f.k.mu.Unlock()
	f.k.hasIface = exists
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

// write makes the objects equal to next, one object at a time: what others
// refer to comes first and leaves last. It returns the number of writes.
func (k *fakeKernel) write(next objects, report *Report) (changes int, err error) {
	stop := errors.New("apply: the data plane broke off")
	do := func(object string, remove bool, op func()) error {
		if k.refuse != nil {
			if err := k.refuse(object); err != nil {
				if port := report.Ports; !remove {
					if name, ok := cutPort(object); ok {
						port[name] = PortStatus{Err: err}
						return nil
					}
				}
				report.Problems = append(report.Problems, Problem{object, err})
				return nil
			}
		}
		if k.budget == 0 {
			return stop
		}
		if k.budget > 0 {
			k.budget--
		}
		op()
		changes++
		return nil
	}
	if k.objects.header != next.header {
		if err := do("host", false, func() { k.objects.header = next.header }); err != nil {
			return changes, err
		}
	}
	for _, step := range []func() error{
		func() error { return put(k.objects.networks, next.networks, networkName, (*desired.Network).Equal, do) },
		func() error { return put(k.objects.sets, next.sets, setName, (*desired.PolicySet).Equal, do) },
		func() error { return put(k.objects.remotes, next.remotes, remoteName, equal[desired.Remote], do) },
		func() error { return put(k.objects.ports, next.ports, portName, equal[desired.Port], do) },
		func() error { return sweep(k.objects.ports, next.ports, portName, do) },
		func() error { return sweep(k.objects.remotes, next.remotes, remoteName, do) },
		func() error { return sweep(k.objects.sets, next.sets, setName, do) },
		func() error { return sweep(k.objects.networks, next.networks, networkName, do) },
	} {
		if err := step(); err != nil {
			return changes, err
		}
	}
	return changes, nil
}

func equal[T comparable](a, b *T) bool { return *a == *b }

func cutPort(object string) (string, bool) {
	const prefix = "port "
	if len(object) > len(prefix) && object[:len(prefix)] == prefix {
		return object[len(prefix):], true
	}
	return "", false
}

func networkName(id model.NetworkID) string { return fmt.Sprintf("network %d", id) }
func setName(id desired.PolicySetID) string { return fmt.Sprintf("policy %d", id) }
func remoteName(k desired.RemoteKey) string { return fmt.Sprintf("remote %d/%s", k.Network, k.MAC) }
func portName(name string) string           { return "port " + name }
func byName[K any](name func(K) string) func(a, b K) int {
	return func(a, b K) int {
		x, y := name(a), name(b)
		if x < y {
			return -1
		} else if x > y {
			return 1
		}
		return 0
	}
}

type doFunc func(object string, remove bool, op func()) error

func put[K comparable, V any](have, want map[K]*V, name func(K) string, same func(a, b *V) bool, do doFunc) error {
	var keys []K
	for key, v := range want {
		if old := have[key]; old == nil || old != v && !same(old, v) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, byName(name))
	for _, key := range keys {
		if err := do(name(key), false, func() { have[key] = want[key] }); err != nil {
			return err
		}
	}
	return nil
}

func sweep[K comparable, V any](have, want map[K]*V, name func(K) string, do doFunc) error {
	var keys []K
	for key := range have {
		if want[key] == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, byName(name))
	for _, key := range keys {
		if err := do(name(key), true, func() { delete(have, key) }); err != nil {
			return err
		}
	}
	return nil
}
