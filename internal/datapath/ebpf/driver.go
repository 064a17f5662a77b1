package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config says where and how the driver works. Log is required. The driver
// works in the network namespace of the thread that calls it.
type Config struct {
	PinDir    string            // on a BPF file system, this driver's own; empty = /sys/fs/bpf/contiv/default
	Device    string            // name of the VXLAN device; empty = contivVxlan0
	VXLANPort uint16            // UDP port; 0 = 4789
	Uplinks   []string          // interfaces that carry VLAN networks; the first that exists is used
	Attach    string            // tcx, clsact, or empty: tcx where the kernel has it; ports have clsact until they last
	Sizes     map[string]uint32 // of maps, by name, where they are not those of bpf/maps.h; see CheckSizes
	Log       *slog.Logger

	load func(dir string, sizes map[string]uint32) (*objects, error) // nil = loadObjects
}

const (
	standardMount = "/sys/fs/bpf"
	// DefaultPinDir holds the pinned objects of a machine's only agent.
	DefaultPinDir = standardMount + "/contiv/default"
	// DefaultDevice is the VXLAN device's name.
	DefaultDevice = "contivVxlan0"
	// DefaultVXLANPort is IANA's (RFC 7348 section 5).
	DefaultVXLANPort = 4789
)

// Driver implements driver.Driver with eBPF programs. Its methods may be
// called from several goroutines.
type Driver struct {
	cfg    Config
	run    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	events chan driver.Event

	reading sync.RWMutex // held by who reads maps without mu; taken before mu is let go

	heard    *heard
	pinWatch *pinWatch
	pinLock  pinLock
	drift    driver.Drift

	mu     sync.Mutex // all below
	closed bool
	obj    *objects
	att    *attacher
	w      writer

	monitoring chan struct{} // closed when the monitor has ended; nil = none was begun
	monitor    *monitor      // that is under way and does not end yet; nil = none

	settings       *table[uint32, settings]
	source         *table[uint32, tunnelSource]
	tunnels        *table[tunnelSource, uint32]
	ends           *table[uint32, tunnelSource] // the reverse
	lastTunnel     uint32                       // number given out
	ports          *table[uint32, port]
	tags           *table[tagKey, segment]
	networks       *table[uint32, network]
	subnets        *table[subnetKey, uint32] // networks, of joined ones
	routedNetworks *table[subnetKey, segment]
	nodes          *table[addr, uint32] // by number in tunnels
	stations       *table[stationKey, station]
	hosts          *table[hostKey, hostEntry]
	members        *table[memberKey, station]
	joined         *table[joinedKey, uint32]
	joinedAt       map[string]int // interface index of ports in it
	reports        chan driver.MembershipReport
	probed         chan uint64
	vtep           atomic.Pointer[netip.Addr]
	sets           *table[uint32, policySet]
	rules          *ruleTable
	privates       *table[uint32, uint32] // interface index by private address
	queues         *table[uint32, queue]

	vips         *table[hostKey, uint32] // service by virtual address
	exposed      *table[addr, exposedEntry]
	services     *table[uint32, service]
	servicePorts *table[frontKey, frontEntry]
	sources      *table[subnetKey, uint32]
	backends     *table[backendKey, backendEntry]
	serving      serving
	tables       []filled // those of them that can be full
	restorables  []restorable
	slots        *slotTables
	restored     time.Time     // when restoreTables last looked
	restoreTook  time.Duration // what that took

	last          desired.Host // what the maps hold, when known
	known         bool
	indexes       map[string]int                     // interface index of each programmed port
	queued        map[string]queued                  // what was made for ports with a rate
	down          map[int]bool                       // indexes of those that somebody has set down
	refused       map[desired.PolicySetID]refusal    // sets that do not fit
	index         map[desired.PolicySetID]*ruleIndex // of sets whose rules are all in
	withered      map[*ruleIndex]bool                // those of them with entries that are to be taken out
	cleaned       map[desired.PolicySetID]time.Time  // when something of a set was last taken out or replaced that turned nothing; forgotten after doomedGrace
	begun         bool                               // an epoch, in this process: the one before may have died between a change and its epoch or turns
	instance      uint32                             // last one used
	doomed        []doomedInstance                   // that no set refers to any more
	ruleIDs       map[uint64]string                  // by number
	pendingAudits driver.PendingAudits               // that came or changed while nobody monitored
	// rulesKept is how many rules the last clean-up of ruleIDs has left.
	rulesKept int
	endpoint  map[string]model.EndpointKey // by port
	under     underlay

	conns        *connections
	frags, hits  *lru
	affines      *lru
	translations translations
	counts       servedCounts
	generations  generations
	hand         uint32                            // last one given, of struct host
	gone         map[hostKey]bool                  // addresses that changed hands, whose connections are to be taken out
	dirty        map[uint32]bool                   // networks whose members change
	netPorts     map[uint32]map[string]stationPort // programmed ports by network
	verified     time.Time                         // when Apply last looked at the programs of every port
	vlan         bool                              // the picture has VLAN networks, which want an uplink
	overlaid     map[string]error                  // interfaces on which others' programs stand before ours; "" = of devices
	deviceFault  func() error                      // tests only: asked before a device is looked at
}

type stationPort struct{ ifindex, set uint32 }

// doomedInstance is what the rules of a set that is gone stand under.
type doomedInstance struct {
	instance uint32
	since    time.Time
}

var _ driver.Driver = (*Driver)(nil)

// New loads the programs and takes over what an earlier process left in the pin
// directory; packets keep flowing. The error wraps ebpf.ErrNotSupported when
// the kernel lacks a feature, which it names.
func New(ctx context.Context, cfg Config) (driver.Driver, error) { return open(ctx, cfg) }

func open(ctx context.Context, cfg Config) (*Driver, error) {
	if cfg.Log == nil {
		return nil, model.Errorf(model.ErrInvalid, "ebpf driver needs a logger")
	}
	if cfg.PinDir == "" {
		cfg.PinDir = DefaultPinDir
	}
	if cfg.Device == "" {
		cfg.Device = DefaultDevice
	}
	if cfg.VXLANPort == 0 {
		cfg.VXLANPort = DefaultVXLANPort
	}
	switch cfg.Attach {
	case "", attachTCX, attachClsact:
	default:
		return nil, model.InvalidField("attach", cfg.Attach, "must be tcx or clsact")
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ebpf driver: %w", err)
	}
	if !hasPrograms(cfg.PinDir) { // which this kernel runs: pins do not outlive it
		if err := Probe(); err != nil {
			return nil, err
		}
	}
	if err := pinDirectory(cfg.PinDir); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, events: make(chan driver.Event, 16), reports: make(chan driver.MembershipReport, 256), probed: make(chan uint64, 256), heard: newHeard()}
	if err := d.pinLock.lock(cfg.PinDir); err != nil {
		return nil, err
	}
	if cfg.load == nil {
		cfg.load = loadObjects
	}
	obj, err := cfg.load(cfg.PinDir, cfg.Sizes)
	if err != nil {
		d.pinLock.unlock()
		return nil, err
	}
	d.obj = obj
	if err := d.takeOver(); err != nil {
		d.pinLock.unlock()
		return nil, errors.Join(err, obj.Close())
	}
	run, cancel := context.WithCancel(context.Background())
	d.run, d.cancel = run, cancel
	if err := d.startWatching(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.hearMemberships(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.wg.Add(1)
	go d.maintain(run)
	if d.att.way == attachTCX {
		home, err := netns.Get()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ebpf driver: open this network namespace: %w", err), d.Close())
		}
		d.wg.Add(1)
		go d.linkLasting(run, home)
	}
	return d, nil
}

// takeOver reads back the maps and puts the programs behind the pinned links.
func (d *Driver) takeOver() error {
	w, o := &d.w, d.obj
	d.settings = newTable[uint32, settings]("settings", o.Settings, w)
	d.source = newTable[uint32, tunnelSource]("tunnel_source", o.TunnelSource, w)
	d.tunnels = newTable[tunnelSource, uint32]("tunnels", o.Tunnels, w)
	d.ends = newTable[uint32, tunnelSource]("tunnel_ends", o.TunnelEnds, w)
	d.ports = newTable[uint32, port]("ports", o.Ports, w)
	d.tags = newTable[tagKey, segment]("tags", o.Tags, w)
	d.networks = newTable[uint32, network]("networks", o.Networks, w)
	d.subnets = newTable[subnetKey, uint32]("subnets", o.Subnets, w)
	d.routedNetworks = newTable[subnetKey, segment]("natives", o.Natives, w)
	d.nodes = newTable[addr, uint32]("nodes", o.Nodes, w)
	d.stations = newTable[stationKey, station]("stations", o.Stations, w)
	d.hosts = newTable[hostKey, hostEntry]("hosts", o.Hosts, w)
	d.members = newTable[memberKey, station]("members", o.Members, w)
	d.joined = newTable[joinedKey, uint32]("joined", o.Joined, w)
	d.joinedAt = map[string]int{}
	d.sets = newTable[uint32, policySet]("sets", o.Sets, w)
	d.rules = newRuleTable(o.Rules, w)
	d.privates = newTable[uint32, uint32]("privates", o.Privates, w)
	d.queues = newTable[uint32, queue]("queues", o.Queues, w)
	d.vips = newTable[hostKey, uint32]("vips", o.Vips, w)
	d.exposed = newTable[addr, exposedEntry]("exposed", o.Exposed, w)
	d.services = newTable[uint32, service]("services", o.Services, w)
	d.servicePorts = newTable[frontKey, frontEntry]("service_ports", o.ServicePorts, w)
	d.sources = newTable[subnetKey, uint32]("sources", o.Sources, w)
	d.backends = newTable[backendKey, backendEntry]("backends", o.Backends, w)
	d.tables = []filled{
		d.ports, d.tags, d.networks, d.subnets, d.stations, d.hosts, d.members, d.joined, d.sets, d.rules, d.privates, d.queues, d.tunnels, d.ends, d.routedNetworks, d.nodes,
		d.vips, d.exposed, d.services, d.servicePorts, d.sources, d.backends, &d.translations, &d.counts,
	}
	d.slots = newSlotTables(d)
	d.restorables = []restorable{
		d.settings, d.source, d.tunnels, d.ends, d.ports, d.tags, d.networks, d.subnets, d.routedNetworks, d.nodes, d.stations, d.hosts, d.members, d.joined, d.sets, d.rules,
		d.privates, d.queues, d.vips, d.exposed, d.services, d.servicePorts, d.sources, d.backends,
		d.slots, // which follow from the backends
	}
	d.restored = time.Now() // what is there is read below
	for _, t := range []*bool{&d.settings.global, &d.source.global, &d.tags.global} {
		*t = true
	}
	d.generations = generations{m: o.Turns, at: map[uint32]bool{}}
	d.conns = newConnections(d)
	d.translations.most.Store(uint64(o.Translations.MaxEntries()))
	d.counts.most.Store(uint64(o.Counted.MaxEntries()) - 1) // place 0 is nobody's
	d.counts.names = map[uint64]model.EndpointKey{}
	d.frags = newLRU("frags", o.Frags, madeFrag, false)
	d.affines = newLRU("affines", o.Affines, madeAffine, false)
	d.hits = newLRU("hits", o.Hits, madeHit, true) // counters of rules that are no more go first
	for _, load := range []func() error{
		func() error { return d.countTables(0) }, d.settings.load, d.source.load, d.tunnels.load, d.ends.load, d.ports.load, d.tags.load, d.networks.load, d.subnets.load, d.routedNetworks.load, d.nodes.load, d.stations.load,
		d.hosts.load, d.members.load, d.joined.load, d.sets.load, d.rules.load, d.privates.load, d.queues.load,
		d.vips.load, d.exposed.load, d.services.load, d.servicePorts.load, d.sources.load, d.backends.load,
	} {
		if err := load(); err != nil {
			return fmt.Errorf("ebpf driver: %w", err)
		}
	}
	d.serving.begin(d)
	if err := d.setMonitor(0); err != nil { // who died may have left it on
		return err
	}
	d.queued = map[string]queued{}
	d.indexes, d.down, d.refused = map[string]int{}, map[int]bool{}, map[desired.PolicySetID]refusal{}
	d.ruleIDs, d.endpoint, d.pendingAudits = map[uint64]string{}, map[string]model.EndpointKey{}, driver.PendingAudits{}
	d.gone, d.dirty, d.netPorts = map[hostKey]bool{}, map[uint32]bool{}, map[uint32]map[string]stationPort{}
	for _, h := range d.hosts.have {
		d.hand = max(d.hand, h.Hand)
	}
	d.index, d.withered, d.overlaid = map[desired.PolicySetID]*ruleIndex{}, map[*ruleIndex]bool{}, map[string]error{}
	d.cleaned = map[desired.PolicySetID]time.Time{}
	used := map[uint32]bool{}
	for _, s := range d.sets.have {
		used[s.Instance] = true
		d.instance = max(d.instance, s.Instance)
	}
	for v := range d.rules.of {
		d.instance = max(d.instance, v)
		if !used[v] {
			d.doomed = append(d.doomed, doomedInstance{instance: v})
		}
	}
	d.att = &attacher{dir: filepath.Join(d.cfg.PinDir, "links"), way: d.cfg.Attach}
	tcx := haveTCX(o.FromUplink)
	switch {
	case d.att.way == attachTCX && !tcx:
		return model.Errorf(model.ErrInvalid, "ebpf driver: this kernel lacks TCX, which Linux 6.6 and later have: %w", ebpf.ErrNotSupported)
	case d.att.way == "" && tcx:
		d.att.way = attachTCX
	case d.att.way == "":
		d.att.way = attachClsact
	}
	uplink, err := d.uplinkName()
	if err != nil {
		return fmt.Errorf("ebpf driver: %w", err)
	}
	return d.att.open(func(name string, wasUplink bool) *ebpf.Program {
		ifname, dir, _ := strings.Cut(name, ":")
		switch {
		case dir == underDir:
			return o.FromUnderlay
		case ifname == d.cfg.Device:
			return o.FromTunnel
		case ifname == uplink, wasUplink:
			// What was the uplink, under other flags, is no container: it may be the
			// host's own way to the store. Apply takes the program off.
			return o.FromUplink
		case ifname == desired.HostInterface:
			return o.FromHost
		case dir == "out":
			return o.ToContainer
		}
		return o.FromContainer
	})
}

// uplinkName is the first uplink that exists; an error comes with the one that
// could not be looked for.
func (d *Driver) uplinkName() (string, error) {
	for _, name := range d.cfg.Uplinks {
		i, err := ifindex(name)
		if err == nil {
			err = d.askDevices()
		}
		if err != nil {
			return name, err
		}
		if i != 0 {
			return name, nil
		}
	}
	return "", nil
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Egress: true, Egress6: true, Services: true, ExternalServices: true, ClientsByTunnel: true, RoutedNetworks: true, Frontends: true, ExternalBackends: true, ServiceStats: true, Routes: true, Bandwidth: true, Multicast: true, Log: true, Audit: true, AuditEstablished: true, Tabled: d, Drifting: d, Memberships: d, TunnelProber: d}
}

// DriftRepairs implements driver.Drifting.
func (d *Driver) DriftRepairs() map[string]uint64 { return d.drift.DriftRepairs() }

// DriftLately implements driver.Drifting.
func (d *Driver) DriftLately(since time.Time) []string { return d.drift.DriftLately(since) }

// Events implements driver.Driver.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// Close implements driver.Driver; programs and maps stay and go on working.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.cancel()
	d.mu.Unlock()
	d.wg.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	close(d.events)
	close(d.reports)
	close(d.probed)
	d.pinLock.unlock()
	d.reading.Lock() // nobody reads maps any more
	defer d.reading.Unlock()
	return errors.Join(d.att.close(), d.obj.Close())
}

func (d *Driver) notify(reason string) {
	select {
	case d.events <- driver.Event{Reason: reason}:
	default:
	}
}
