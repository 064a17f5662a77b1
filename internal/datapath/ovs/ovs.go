package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config says which switch to use and how. OVSDB, RunDir and Log are required.
type Config struct {
	OVSDB     string     // the database, such as unix:/var/run/openvswitch/db.sock
	RunDir    string     // where the switch puts <bridge>.mgmt
	Bridge    string     // empty = contivBr
	Datapath  string     // system (kernel), netdev (user space), or empty or auto
	Uplinks   []string   // interfaces that carry VLAN networks; the first one that is up is used
	VTEP      netip.Addr // own tunnel address; zero = the routing table chooses
	VXLANPort uint16     // UDP port; 0 = 4789
	Log       *slog.Logger

	mutation pipeline.Mutation // tests only
	links    *netlink.Handle   // tests only: the namespace of the switch; nil = the caller's
}

// Defaults.
const (
	DefaultBridge = "contivBr"
	// DefaultVXLANPort is IANA's (RFC 7348 section 5).
	DefaultVXLANPort = 4789
	tunnelName       = "contivVxlan"
)

// switchTimeout bounds how long Apply waits for the switch to answer: a stopped
// switch must not keep health from hearing of it.
const switchTimeout = 30 * time.Second

var errUnresponsive = model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer; see whether ovs-vswitchd hangs")

// portWait bounds how long Apply waits for the switch to number new ports.
const portWait = 3 * time.Second

func (c Config) defaults() (Config, error) {
	if c.OVSDB == "" || c.RunDir == "" || c.Log == nil {
		return c, model.Errorf(model.ErrInvalid, "open vswitch driver needs a database address, a run directory and a logger")
	}
	if c.Bridge == "" {
		c.Bridge = DefaultBridge
	}
	if c.VXLANPort == 0 {
		c.VXLANPort = DefaultVXLANPort
	}
	switch c.Datapath {
	case "system", "netdev":
	case "", "auto":
		c.Datapath = "netdev"
		if _, err := netlink.GenlFamilyGet("ovs_datapath"); err == nil {
			c.Datapath = "system"
		}
	default:
		return c, model.InvalidField("ovs-datapath", c.Datapath, "must be auto, system or netdev")
	}
	return c, nil
}

// Driver implements driver.Driver on Open vSwitch. Its methods may be called from several
// goroutines. It owns the lock, the goroutines and the order of an Apply; its parts own the
// state.
type Driver struct {
	*env
	run    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	tables tableUsage

	daemon    *daemon
	conns     *connections
	bridge    *bridge
	underlay  *underlay
	bandwidth *bandwidth
	flows     *flows
	ports     *ports
	names     *flowNames
	responder *responder
	ownMark   *ownMark

	mu                 sync.Mutex           // one Apply, replay or reading at a time; guards the parts too, unless they say otherwise
	want               *desired.Host        // what was last asked for
	pendingAudits      driver.PendingAudits // audits that came or changed without a monitor
	catchesStrayFrames bool                 // what the switch misses of the tunnel is taken
}

// newDriver makes a driver without connections.
func newDriver(cfg Config) *Driver {
	e := &env{cfg: cfg, events: make(chan driver.Event, 16), patience: switchTimeout}
	d := &Driver{env: e, pendingAudits: driver.PendingAudits{}}
	d.daemon = &daemon{env: e, flushSoon: make(chan struct{}, 1), listable: maxEstablished}
	d.conns = &connections{env: e}
	d.bridge = &bridge{env: e, conns: d.conns}
	d.bandwidth = &bandwidth{env: e, conns: d.conns, shaper: newShaper(cfg), queued: map[string]portQueues{}, replaced: map[string]int{}}
	d.underlay = &underlay{env: e, conns: d.conns, bridge: d.bridge, links: d.bandwidth.shaper.links, asked: map[netip.Addr]time.Time{}}
	d.flows = &flows{env: e, conns: d.conns, daemon: d.daemon, pic: newFlowState()}
	d.ports = &ports{env: e, conns: d.conns, bridge: d.bridge, underlay: d.underlay, bandwidth: d.bandwidth, flows: d.flows, left: map[string]time.Time{}}
	d.names = &flowNames{flows: d.flows, rules: map[uint32]string{}}
	d.responder = &responder{env: e, daemon: d.daemon, underlay: d.underlay, reports: make(chan driver.MembershipReport, 256), probed: make(chan uint64, 256)}
	d.ownMark = &ownMark{env: e, filterIndex: -1}
	return d
}

var _ driver.Driver = (*Driver)(nil)

// New connects to the database and makes sure of the bridge. The error is of
// kind ErrUnavailable when no database answers, ErrConflict when the bridge of the
// configured name is somebody else's.
func New(ctx context.Context, cfg Config) (driver.Driver, error) {
	return open(ctx, cfg)
}

func open(ctx context.Context, cfg Config) (*Driver, error) {
	cfg, err := cfg.defaults()
	if err != nil {
		return nil, err
	}
	d := newDriver(cfg)
	if d.conns.db, err = openDatabase(ctx, cfg.OVSDB, cfg.Log); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: %w; is it running, and is --ovs-db its address?", err)
	}
	if err := refuseUnusableUplinks(cfg, d.conns.db); err != nil {
		d.conns.db.close()
		return nil, err
	}
	if _, err := d.bridge.ensureBridge(ctx, d.conns.db); err != nil {
		d.conns.db.close()
		return nil, err
	}
	if d.conns.sw, err = dial(ctx, cfg); err != nil {
		d.conns.db.close()
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: %w; is ovs-vswitchd running, and is --ovs-run-dir its directory?", err)
	}
	run, cancel := context.WithCancel(context.Background())
	d.run, d.cancel = run, cancel
	measure := d.underlay.measureMTU
	d.underlay.measure.Store(&measure)
	d.underlay.noteMTU()
	db, sw := d.conns.db, d.conns.sw
	for _, fn := range []func(context.Context){d.watchMTU, d.responder.serve, d.watchInterfaces, d.daemon.flushLater} {
		d.wg.Go(func() { fn(run) })
	}
	d.wg.Go(func() { d.maintainDatabase(run, db) })
	d.wg.Go(func() { d.maintainSwitch(run, sw) })
	return d, nil
}

// DriftRepairs implements driver.DriftReporter.
func (d *Driver) DriftRepairs() map[string]uint64 { return d.drift.DriftRepairs() }

// RecentDrift implements driver.DriftReporter.
func (d *Driver) RecentDrift(since time.Time) []string { return d.drift.RecentDrift(since) }

// Events implements driver.Driver.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// Close implements driver.Driver; bridge, ports and flows stay.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel()
	w := d.flows.watching
	d.mu.Unlock()
	if w != nil {
		<-w.ended // it takes its flows back
	}
	d.mu.Lock()
	sw := d.conns.sw
	d.mu.Unlock()
	var err error
	if sw != nil {
		err = sw.Close()
	}
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns.sw != nil && d.conns.sw != sw {
		err = errors.Join(err, d.conns.sw.Close())
	}
	d.flows.closeGroups()
	if d.conns.db != nil {
		d.conns.db.close()
	}
	d.conns.db, d.conns.sw = nil, nil
	close(d.events)
	close(d.responder.reports)
	close(d.responder.probed)
	return err
}

// Apply implements driver.Driver.
func (d *Driver) Apply(ctx context.Context, want desired.Host) (driver.Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.Capabilities().Services {
		want.Services = desired.Map[model.ServiceKey, *desired.Service]{}
	}
	d.want = &want
	return d.apply(ctx, want, false)
}

// Prepare implements driver.Preparer: the ports, all but the tunnel and the
// host's interface to its containers. They get no flows yet: a switch in user
// space sees copies of what containers send while another driver forwards, and
// its connection tracking, which would see one side of each connection only,
// would refuse the other side afterwards.
func (d *Driver) Prepare(ctx context.Context, want desired.Host) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns.db == nil || d.conns.sw == nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	d.ports.prepares = true
	defer func() { d.ports.prepares = false }()
	if _, _, err := d.ports.ensurePorts(ctx, want); err != nil {
		return fmt.Errorf("open vswitch: ports: %w", err)
	}
	d.ports.awaitNumbers(ctx, want)
	return nil
}

func (d *Driver) apply(ctx context.Context, want desired.Host, force bool) (driver.Report, error) {
	rep := driver.Report{Revision: want.Revision}
	if err := ctx.Err(); err != nil {
		return rep, fmt.Errorf("open vswitch: %w", err)
	}
	if err := d.Hangs(); err != nil {
		return rep, err
	}
	if d.conns.db != nil {
		if err := d.bridge.restoreBridge(ctx, d.conns.db); err != nil {
			return rep, fmt.Errorf("open vswitch: %w", err)
		}
	}
	if d.conns.db == nil || d.conns.sw == nil {
		return rep, model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	if err := d.underlay.syncRoute(ctx, force); err != nil {
		return rep, fmt.Errorf("open vswitch: %w", err)
	}
	d.names.learnAll(want)
	d.underlay.noteWidest(want)
	removed, others := d.bridge.clearOthers(ctx, want)
	rep.Changes += removed
	rep.Problems = append(rep.Problems, others...)
	limited, limits := d.bandwidth.makeQueues(want, force)
	made, problems, err := d.ports.ensurePorts(ctx, want)
	rep.Changes += limited + made
	rep.Problems = append(rep.Problems, limits...)
	rep.Problems = append(rep.Problems, problems...)
	if err != nil {
		return rep, fmt.Errorf("open vswitch: ports: %w", err)
	}
	d.underlay.resolve(ctx, want)
	d.catchStrayFrames()
	// What can be closed or opened now does not wait for new ports.
	if err := d.putFlows(ctx, want, &rep, force); err != nil {
		return rep, err
	}
	if d.ports.awaitNumbers(ctx, want) {
		if err := d.putFlows(ctx, want, &rep, false); err != nil {
			return rep, err
		}
	}
	gone, err := d.ports.removePorts(ctx, want)
	rep.Changes += gone
	if err != nil {
		return rep, fmt.Errorf("open vswitch: ports: %w", err)
	}
	gone, limits = d.bandwidth.removeQueues()
	rep.Changes += gone
	rep.Problems = append(rep.Problems, limits...)
	d.ports.noteSeen(want)
	d.reportEstablished(ctx)
	d.ports.reportPorts(want, &rep, tunnelProblem(problems))
	rep.Problems = append(rep.Problems, d.flows.pic.policies.problems()...)
	rep.Problems = append(rep.Problems, d.flows.pic.services.problems()...)
	rep.Problems = append(rep.Problems, d.underlay.underlayProblems()...)
	rep.Problems = append(rep.Problems, d.ownMark.ensureFilter(want)...)
	rep.Problems = append(rep.Problems, d.ports.unmanaged()...)
	rep.Verified = d.flows.verified
	return rep, nil
}

// putFlows brings the switch's flows up to date. When nothing is to be changed it
// compares them with what they should be, unless it did a moment ago.
func (d *Driver) putFlows(ctx context.Context, want desired.Host, rep *driver.Report, force bool) error {
	if force || !d.flows.known {
		d.flows.setMeters(ctx)
		d.daemon.acceptSmallFragments(ctx)
	}
	cfg, numbers := d.ports.inputs(want)
	d.responder.tunnelPort.Store(cfg.Tunnel)
	before := d.flows.pic.have.PolicySets
	d.flows.pic.update(want, cfg, numbers)
	d.pendingAudits.Note(before, want.PolicySets)
	changes, err := d.flows.sync(ctx, force, rep.Changes > 0, func() { d.responder.nameNumbers(&want, d.flows.pic) })
	if err == nil {
		rep.Changes += changes
		d.tables.flows.Store(uint64(len(d.flows.pic.ledger.installed)))
	}
	return err
}
