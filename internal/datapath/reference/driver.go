package reference

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"sync"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Driver is a driver that executes: it holds what was applied, refuses what a
// kernel would refuse, judges packets (Send) with a connection table of its
// own, and counts. It is the reference of what every driver must do. Its
// methods may be called from several goroutines.
type Driver struct {
	k      *kernel
	events chan driver.Event
	closed bool
	// states has judged the newest desired state, which the kernel holds; nil when the
	// kernel may hold something else: then the next desired state is compared with all
	// that is there.
	states *desiredStates

	stopMonitor func() // nil until the first Monitor

	audited       desired.Map[desired.PolicySetID, *desired.PolicySet] // of the last desired state
	pendingAudits driver.PendingAudits
}

// kernel is what outlives a driver process: objects, connections, counters.
type kernel struct {
	mu      sync.Mutex
	objects objects
	tables  *tables // indexes over objects
	conns   *conntrack
	nat     *nat
	ports   map[string]*driver.PortStats
	rules   map[string]*driver.RuleStats
	drops   map[string]uint64
	monitor *monitor // nil without a monitor

	preferred []netip.Addr // see Prefer

	hasIface func(name string) bool
	refuse   func(object string) error
	budget   int // writes left until Apply breaks off; negative = no limit
}

// objects are what a desired state becomes in the data plane.
type objects struct {
	header   header
	networks map[model.NetworkID]*desired.Network
	sets     map[desired.PolicySetID]*desired.PolicySet
	remotes  map[desired.RemoteKey]*desired.Remote
	ports    map[string]*desired.Port
	services map[model.ServiceKey]*desired.Service
}

func noObjects() objects {
	return objects{
		networks: map[model.NetworkID]*desired.Network{},
		sets:     map[desired.PolicySetID]*desired.PolicySet{},
		remotes:  map[desired.RemoteKey]*desired.Remote{},
		ports:    map[string]*desired.Port{},
		services: map[model.ServiceKey]*desired.Service{},
	}
}

var _ driver.Driver = (*Driver)(nil)

// New returns a driver with an empty data plane.
func New() *Driver {
	k := &kernel{
		objects: noObjects(), conns: newConntrack(), nat: newNAT(), ports: map[string]*driver.PortStats{},
		rules: map[string]*driver.RuleStats{}, drops: map[string]uint64{}, budget: -1,
	}
	k.tables = index(k.objects)
	return &Driver{k: k, events: make(chan driver.Event, 16)}
}

// Restart closes d and returns a driver that finds d's data plane as it is, as a
// restarted agent would.
func (d *Driver) Restart() *Driver {
	_ = d.Close() // cannot fail
	return &Driver{k: d.k, events: make(chan driver.Event, 16)}
}

// Prefer has new connections to services go to a backend with one of the addresses,
// wherever one may be chosen, until the next Prefer; without any each goes to the backend
// of its slot. So the reference follows a data plane that chooses by a hash of its own.
func (d *Driver) Prefer(backends ...netip.Addr) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.preferred = backends
}

// Apply implements driver.Driver.
func (d *Driver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return driver.Report{}, err
	}
	if d.closed {
		return driver.Report{}, errors.New("apply: the driver is closed")
	}
	whole := !d.states.isIncremental(want)
	if whole {
		d.states = newDesiredStates(want)
	}
	same := !whole && !differ(want, d.states.want)
	t := d.states.next(want, d.k.hasIface, same)
	report := driver.Report{Revision: want.Revision, Ports: driver.SharePorts(d.states.status), Problems: d.states.problems()}
	complete, err := d.k.write(d.states, t, whole, &report)
	if d.k.budget = -1; !complete || err != nil {
		d.states = nil
	}
	d.noteAudits(want.PolicySets)
	d.reportEstablished()
	return report, err
}

// differ reports whether any object differs between two desired states.
func differ(a, b desired.Host) bool {
	return differs(a.Networks, b.Networks) || differs(a.PolicySets, b.PolicySets) || differs(a.Remotes, b.Remotes) ||
		differs(a.Ports, b.Ports) || differs(a.Services, b.Services) || differs(a.Tunnels, b.Tunnels) || differs(a.Nodes, b.Nodes) || differs(a.NodeAddrs, b.NodeAddrs) || differs(a.Groups, b.Groups)
}

func differs[K, V comparable](a, b desired.Map[K, V]) bool {
	for range a.Diff(b) {
		return true
	}
	return false
}

// Events implements driver.Driver.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// Capabilities implements driver.Driver. Egress is executed on packets, but
// no interface of this machine is made for it.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Services: true, ExternalServices: true, ClientsByTunnel: true, RoutedNetworks: true, Frontends: true, ExternalBackends: true, ServiceStats: true, Egress6: true, Routes: true, Multicast: true, Log: true, Audit: true, AuditEstablished: true, Tabled: d, Connections: d}
}

// Tables implements driver.TableReporter: the reference's tables never evict.
func (d *Driver) Tables() map[string]driver.TableStats {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return map[string]driver.TableStats{"conns": {Entries: uint64(len(d.k.conns.conns)), Evicts: true}}
}

// Stats implements driver.Driver.
func (d *Driver) Stats(context.Context) (driver.Stats, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	s := driver.Stats{Ports: map[string]driver.PortStats{}, Rules: map[string]driver.RuleStats{}, Drops: maps.Clone(d.k.drops)}
	for name, p := range d.k.objects.ports {
		var c driver.PortStats
		if got := d.k.ports[name]; got != nil {
			c = *got
		}
		c.Endpoint = p.Endpoint
		s.Ports[name] = c
	}
	for id, r := range d.k.rules {
		s.Rules[id] = *r
	}
	s.Services = d.k.serviceStats()
	return s, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if !d.closed {
		d.closed = true
		close(d.events)
		if d.stopMonitor != nil {
			d.stopMonitor()
			d.k.endMonitor(d.k.monitor)
		}
	}
	return nil
}

// Interfaces makes ports whose interface does not exist fail with model.ErrNotFound, as
// with a real data plane. nil: all exist. Apply checks the interfaces of new ports and of
// ports that had none, and all of them when the desired state is the one before, as a
// search for drift does.
func (d *Driver) Interfaces(exists func(name string) bool) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.hasIface, d.states = exists, nil
}

// Refuse makes the data plane refuse to write the objects for which fn returns
// an error, named as in Inspect ("port cv...", "network 3", "policy 17",
// "remote 3/02:02:..."). nil: none.
func (d *Driver) Refuse(fn func(object string) error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.refuse = fn
}

// BreakAfter makes the next Apply break off with an error after n writes,
// leaving the data plane half done. Negative: not.
func (d *Driver) BreakAfter(n int) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.budget = n
}

// Reset empties the data plane, connections included, as when the switch
// process dies, and tells so by an event.
func (d *Driver) Reset(reason string) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.objects, d.k.conns = noObjects(), newConntrack()
	d.k.forgetTranslations()
	d.k.tables = index(d.k.objects)
	d.states = nil
	if d.closed {
		return
	}
	select {
	case d.events <- driver.Event{Reason: reason}:
	default:
	}
}

// ForgetConnections empties the connection table.
func (d *Driver) ForgetConnections() {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	d.k.conns = newConntrack()
	d.k.forgetTranslations()
}
