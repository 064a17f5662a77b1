package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
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
	links    *netlink.Handle   // tests only: the namespace of the switch; nil = of whoever calls
}

// Defaults.
const (
	DefaultBridge = "contivBr"
	// DefaultVXLANPort is IANA's (RFC 7348 section 5).
	DefaultVXLANPort = 4789
	tunnelName       = "contivVxlan"
)

// switchPatience bounds how long Apply waits for the switch to answer: a stopped
// switch must not keep health from hearing of it.
const switchPatience = 30 * time.Second

var errSilent = model.Errorf(model.ErrUnavailable, "open vswitch: the switch does not answer; see whether ovs-vswitchd hangs")

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

// Driver implements driver.Driver on Open vSwitch. Its methods may be called
// from several goroutines.
type Driver struct {
	cfg    Config
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan driver.Event

	run       context.Context // ends with Close
	flushSoon chan struct{}   // asks for the cache to be flushed soon

	latest     atomic.Pointer[desired.Host] // the picture that the switch's flows are of
	named      atomic.Pointer[numbering]    // ports by the number that their flows are for
	reports    chan driver.MembershipReport
	probed     chan uint64
	answerc    atomic.Pointer[openflow.Conn] // by which the driver answers for routers; nil while there is none
	tunnelPort atomic.Uint32                 // its number; 0 = there is none

	rowMu  sync.Mutex // one correction of the bridge's row at a time; may be taken under mu
	bridge string     // the row, once it was known as Contiv's
	noted  string     // the last route that was to be given; "" = none

	mu        sync.Mutex // one Apply, replay or reading at a time
	db        *database
	sw        *openflow.Conn
	pic       *picture
	silent    atomic.Bool     // the switch has a connection and does not answer
	prepares  bool            // what the old driver still holds is left out
	want      *desired.Host   // what was last asked for
	known     bool            // the ledger knows what the switch holds
	groupc    openflow.Groups // by which groups are changed; none until there are services
	answers   bool            // the switch bounds what comes to be answered
	tooBig    atomic.Uint64   // packets that were told so
	tunnelMTU atomic.Uint32
	wireMTU   atomic.Uint32                 // of the uplinks
	measure   atomic.Pointer[func() uint16] // measureMTU, but in tests
	alone     bool                          // the tunnel\'s address has no subnet
	widest    map[model.Encap]uint16        // the biggest MTU of containers, by their networks' encapsulation
	rules     map[uint32]string             // rule ids by the number in cookies
	kept      int                           // how many of rules the last clean-up has left
	fills     fills
	verified  time.Time
	dumpTook  time.Duration
	strange   strangeFlows         // as of verified
	patience  time.Duration        // switchPatience, but in tests
	listable  uint64               // maxLiving, but in tests
	listed    time.Time            // when connections were listed last for a packet from outside; of answerOn
	watching  *watch               // who monitors; nil = nobody
	shared    *openflow.Conn       // to the switch that has the meters of shares
	untold    driver.PendingAudits // audits that came or changed while nobody monitored
	fault     func() error         // tests only: asked before every write
	drift     driver.Drift
	missed    bool                     // what the switch misses of the tunnel is taken
	asked     map[netip.Addr]time.Time // tunnel endpoints, and when they were last asked for
	stood     map[string]bool          // wanted ports that the switch has had
	route     netip.Prefix             // the tunnel's link, to which the switch has been given a route; zero = it has none
	routeSeen time.Time                // when the host's addresses were last looked at for it
	under     string                   // the bridge that has the tunnel's address; "" = none, or not known yet
	cut       bool                     // no cable in that bridge has a link, as reported
	showsOwn  int                      // the index of the host's interface that shows what its own sockets send; 0 = none, -1 = not known
	shaper    shaper
	shaped    map[string]shaped    // ports with a limit, by name
	remade    map[string]int       // ports whose pair was made again, which the switch has to open again, with their numbers
	left      map[string]time.Time // ports that the switch was told to let go of, and when
	swept     bool                 // nothing of limits is left that is gone
	shapeSeen time.Time            // when what was made for limits was last looked at
	devices   map[string]string    // what was reported to be wrong with interfaces of wanted ports; nil = nothing was reported yet
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
	d := &Driver{cfg: cfg, events: make(chan driver.Event, 16), reports: make(chan driver.MembershipReport, 256), probed: make(chan uint64, 256), flushSoon: make(chan struct{}, 1), pic: newPicture(), patience: switchPatience, listable: maxLiving, rules: map[uint32]string{}, untold: driver.PendingAudits{}, asked: map[netip.Addr]time.Time{}, showsOwn: -1, shaper: newShaper(cfg), shaped: map[string]shaped{}, remade: map[string]int{}, left: map[string]time.Time{}}
	if d.db, err = openDatabase(ctx, cfg.OVSDB, cfg.Log); err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: %w; is it running, and is --ovs-db its address?", err)
	}
	if err := d.refuseOwnUplinks(); err != nil {
		d.db.close()
		return nil, err
	}
	if _, err := d.ensureBridge(ctx, d.db); err != nil {
		d.db.close()
		return nil, err
	}
	if d.sw, err = d.dial(ctx); err != nil {
		d.db.close()
		return nil, model.Errorf(model.ErrUnavailable, "open vswitch: %w; is ovs-vswitchd running, and is --ovs-run-dir its directory?", err)
	}
	run, cancel := context.WithCancel(context.Background())
	d.run, d.cancel = run, cancel
	measure := d.measureMTU
	d.measure.Store(&measure)
	d.noteMTU()
	d.wg.Add(6)
	go d.watchMTU(run)
	go d.keepAnswering(run)
	go d.watchInterfaces(run)
	go d.flushLater(run)
	go d.keepDatabase(run, d.db)
	go d.keepSwitch(run, d.sw)
	return d, nil
}

// notify tells the owner; when it does not listen, the events that wait are enough.
func (d *Driver) notify(reason string) {
	select {
	case d.events <- driver.Event{Reason: reason}:
	default:
	}
}

// DriftRepairs implements driver.Drifting.
func (d *Driver) DriftRepairs() map[string]uint64 { return d.drift.DriftRepairs() }

// DriftLately implements driver.Drifting.
func (d *Driver) DriftLately(since time.Time) []string { return d.drift.DriftLately(since) }

// Events implements driver.Driver.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// Close implements driver.Driver; bridge, ports and flows stay.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel()
	w := d.watching
	d.mu.Unlock()
	if w != nil {
		<-w.ended // it takes its flows back
	}
	d.mu.Lock()
	sw := d.sw
	d.mu.Unlock()
	var err error
	if sw != nil {
		err = sw.Close()
	}
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sw != nil && d.sw != sw {
		err = errors.Join(err, d.sw.Close())
	}
	d.closeGroups()
	if d.db != nil {
		d.db.close()
	}
	d.db, d.sw = nil, nil
	close(d.events)
	close(d.reports)
	close(d.probed)
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
	if d.db == nil || d.sw == nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	d.prepares = true
	defer func() { d.prepares = false }()
	if _, _, err := d.ensurePorts(ctx, want); err != nil {
		return fmt.Errorf("open vswitch: ports: %w", err)
	}
	d.awaitNumbers(ctx, want)
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
	if d.db != nil {
		if err := d.restoreBridge(ctx, d.db); err != nil {
			return rep, fmt.Errorf("open vswitch: %w", err)
		}
	}
	if d.db == nil || d.sw == nil {
		return rep, model.Errorf(model.ErrUnavailable, "open vswitch: the switch or its database does not answer")
	}
	if err := d.keepRoute(ctx, force); err != nil {
		return rep, fmt.Errorf("open vswitch: %w", err)
	}
	d.learnAll(want)
	d.noteWidest(want)
	removed, others := d.clearOthers(ctx, want)
	rep.Changes += removed
	rep.Problems = append(rep.Problems, others...)
	limited, limits := d.shape(want, force)
	made, problems, err := d.ensurePorts(ctx, want)
	rep.Changes += limited + made
	rep.Problems = append(rep.Problems, limits...)
	rep.Problems = append(rep.Problems, problems...)
	if err != nil {
		return rep, fmt.Errorf("open vswitch: ports: %w", err)
	}
	d.resolve(ctx, want)
	d.catchMissed()
	// What can be closed or opened now does not wait for new ports.
	if err := d.flows(ctx, want, &rep, force); err != nil {
		return rep, err
	}
	if d.awaitNumbers(ctx, want) {
		if err := d.flows(ctx, want, &rep, false); err != nil {
			return rep, err
		}
	}
	gone, err := d.removePorts(ctx, want)
	rep.Changes += gone
	if err != nil {
		return rep, fmt.Errorf("open vswitch: ports: %w", err)
	}
	gone, limits = d.unshape()
	rep.Changes += gone
	rep.Problems = append(rep.Problems, limits...)
	d.remember(want)
	d.tellLiving(ctx)
	d.reportPorts(want, &rep, tunnelTrouble(problems))
	rep.Problems = append(rep.Problems, d.pic.policies.problems()...)
	rep.Problems = append(rep.Problems, d.pic.services.problems()...)
	rep.Problems = append(rep.Problems, d.underlayProblems()...)
	rep.Problems = append(rep.Problems, d.showOwn(want)...)
	rep.Problems = append(rep.Problems, d.strangers()...)
	return rep, nil
}

// flows brings the switch's flows up to date. When nothing is to be changed it
// compares them with what they should be, unless it did a moment ago.
func (d *Driver) flows(ctx context.Context, want desired.Host, rep *driver.Report, force bool) error {
	if force || !d.known {
		d.setMeters(ctx)
		d.takeSmallPieces(ctx)
	}
	cfg, numbers := d.inputs(want)
	d.tunnelPort.Store(cfg.Tunnel)
	before := d.pic.have.PolicySets
	d.pic.update(want, cfg, numbers)
	d.untold.Note(before, want.PolicySets)
	unknown := !d.known
	if unknown {
		if err := d.readBack(ctx); err != nil {
			return err
		}
	}
	if err := d.makeRoom(ctx); err != nil {
		return err
	}
	edits := d.pic.ledger.edits()
	// Reading back costs up to a twentieth of the time.
	if force && !unknown || len(edits) == 0 && rep.Changes == 0 && time.Since(d.verified) > 20*d.dumpTook {
		own := len(edits)
		if err := d.readBack(ctx); err != nil {
			return err
		}
		edits = d.pic.ledger.edits()
		d.drift.Repaired(d.cfg.Log, driver.DriftFlow, d.cfg.Bridge, max(len(edits)-own, 0))
	}
	first, last := d.pic.services.groups.edits() // flows lead to groups
	if err := d.changeGroups(ctx, first); err != nil {
		return err
	}
	if err := d.write(ctx, edits); err != nil {
		return err
	}
	if err := d.changeGroups(ctx, last); err != nil {
		return err
	}
	d.latest.Store(&want)
	d.nameNumbers()
	if err := d.emptyZones(ctx); err != nil {
		return err
	}
	if err := d.endTranslations(ctx); err != nil {
		return err
	}
	d.fills.flows.Store(uint64(len(d.pic.ledger.installed)))
	rep.Changes += len(edits) + len(first) + len(last)
	return nil
}

// readBack learns what flows of ours, and of others, the switch holds.
func (d *Driver) readBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	start := time.Now()
	found := map[string]string{}
	var odd []openflow.Mod
	var strange strangeFlows
	err := d.sw.DumpFlows(ctx, openflow.AllFlows, func(s openflow.FlowStats) {
		switch {
		case !strange.note(s):
		case s.Err != nil: // ours, but of another version
			odd = append(odd, openflow.Mod{All: true, Flow: openflow.Flow{Cookie: s.Flow.Cookie}, CookieMask: ^uint64(0)})
		default:
			found[s.Flow.Key()] = s.Flow.Body()
		}
	})
	d.strange = strange
	if err != nil {
		return model.Errorf(model.ErrUnavailable, "open vswitch: read flows: %w", err)
	}
	d.pic.ledger.found(found)
	d.pic.findLeft()
	if err := d.findServices(ctx, found, !d.known); err != nil {
		return err
	}
	d.known, d.verified, d.dumpTook = true, time.Now(), time.Since(start)
	if len(odd) == 0 {
		return nil
	}
	// Flows that cannot be decoded go in the bundle in which their replacements come.
	for _, m := range odd {
		for k, body := range found {
			if f, err := openflow.FromParts(k, body); err == nil && f.Cookie == m.Flow.Cookie {
				delete(found, k) // goes with the odd flow of its cookie, so it is written again
			}
		}
	}
	d.pic.ledger.found(found)
	edits := d.pic.ledger.edits()
	mods, err := toMods(edits)
	if err != nil {
		return err
	}
	if err := d.commit(ctx, append(odd, mods...), true); err != nil {
		return err
	}
	d.pic.ledger.done(edits)
	return nil
}

func toMods(edits []edit) ([]openflow.Mod, error) {
	mods := make([]openflow.Mod, 0, len(edits))
	for _, e := range edits {
		f, err := openflow.FromParts(e.key, e.body)
		if err != nil {
			return nil, err
		}
		mods = append(mods, openflow.Mod{Delete: e.remove, Flow: f})
	}
	return mods, nil
}

// write commits edits as one atomic change.
func (d *Driver) write(ctx context.Context, edits []edit) error {
	mods, err := toMods(edits)
	if err != nil {
		return fmt.Errorf("open vswitch: %w", err)
	}
	if err := d.commit(ctx, mods, d.pic.revokes(edits)); err != nil {
		return err
	}
	d.pic.ledger.done(edits)
	return nil
}

// commit changes the switch's flows at once. What revokes has taken effect when it returns.
func (d *Driver) commit(ctx context.Context, mods []openflow.Mod, revokes bool) error {
	if len(mods) == 0 {
		return nil
	}
	// Giving up in the middle would leave open whether the bundle was committed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.patience)
	defer cancel()
	if d.fault != nil {
		if err := d.fault(); err != nil {
			return err
		}
	}
	if d.watching != nil && d.shared != d.sw { // the monitor's flows name meters
		if err := d.sw.Share(ctx, pipeline.ShareRate, pipeline.Shares()...); err != nil {
			return model.Errorf(model.ErrUnavailable, "open vswitch: bound what is told of each port: %w", err)
		}
		d.shared = d.sw
	}
	err := d.sw.Commit(ctx, mods)
	if err == nil {
		d.forgetCached(ctx, revokes)
		return nil
	}
	d.known, d.shared = false, nil // the bundle may or may not have been committed
	if e := (*openflow.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("open vswitch: %w", err)
	}
	return model.Errorf(model.ErrUnavailable, "open vswitch: %w", err)
}
