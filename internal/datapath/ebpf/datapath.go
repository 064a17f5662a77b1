package ebpf

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/bpfattach"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// datapath holds the parts of the driver, one per subject. Each part owns its tables and
// state, and links to the few other parts that it needs. Driver.mu guards all parts.
// Connections, translations, affinities and counters read maps that packets fill; they
// need no lock for that.
type datapath struct {
	obj     *objects
	tables  *mapTables
	applied *applied

	settings  *programSettings
	att       *attacher
	pins      *pins
	devices   *devices
	endpoints *endpoints
	networks  *networks
	routing   *routing
	policies  *policies
	bandwidth *bandwidth
	ports     *ports
	groups    *multicastGroups
	services  *serviceState

	conns     *connections
	conntrack *conntrack
	counters  *counters
	names     *flowNames
}

// tableParts returns the parts that have tables.
func (dp *datapath) tableParts() []any {
	return []any{dp.settings, dp.devices, dp.routing, dp.ports, dp.networks, dp.endpoints, dp.groups, dp.policies, dp.bandwidth, dp.services.maps}
}

// newDatapath makes the parts and reads what the maps hold.
func newDatapath(cfg Config, obj *objects, drift *driver.Drift) (*datapath, error) {
	r := repairs{drift, cfg.Log}
	dp := &datapath{obj: obj, tables: &mapTables{repairs: r}, applied: &applied{}, settings: &programSettings{}, conns: newConnections(obj), counters: newCounters(obj)}
	changed := &generations{m: obj.Turns, w: &dp.tables.w, at: map[uint32]bool{}}
	dp.att = &attacher{dir: filepath.Join(cfg.PinDir, "links"), way: cfg.Attach, repairs: r}
	dp.pins = &pins{dir: cfg.PinDir, obj: obj, att: dp.att, repairs: r}
	dp.devices = &devices{cfg: cfg, obj: obj, att: dp.att, settings: dp.settings, repairs: r}
	dp.endpoints = &endpoints{generations: changed}
	dp.networks, dp.routing = &networks{}, &routing{}
	dp.policies = newPolicies()
	dp.bandwidth = &bandwidth{pinDir: cfg.PinDir, obj: obj, att: dp.att, repairs: r, queued: map[string]queued{}}
	dp.ports = &ports{obj: obj, att: dp.att, devices: dp.devices, bandwidth: dp.bandwidth, endpoints: dp.endpoints, networks: dp.networks, policies: dp.policies, repairs: r}
	dp.groups = &multicastGroups{ports: dp.ports, joinedAt: map[string]int{}}
	dp.conntrack = &conntrack{obj: obj, frags: newLRU("frags", obj.Frags, obj.Created, createdFrag, false), translations: newTranslations(obj.Translations, dp.conns), endpoints: dp.endpoints, networks: dp.networks}
	dp.services = &serviceState{
		maps: &serviceTables{}, settings: dp.settings, generations: changed, translations: dp.conntrack.translations,
		affinities: newAffinities(obj), counts: newServiceCounters(obj),
	}
	dp.services.slots = newSlotTables(obj.Choices, &dp.services.maps.Backends, r)
	dp.names = &flowNames{dp.applied, dp.ports, dp.endpoints, dp.networks, dp.policies}
	if err := dp.tables.open(obj, dp.tableParts()...); err != nil {
		return nil, err
	}
	dp.tables.all = append(dp.tables.all, dp.services.slots) // which follow from the backends
	dp.tables.filled = append(dp.tables.filled, dp.conntrack.translations, dp.services.counts)
	dp.endpoints.load()
	dp.networks.load()
	dp.ports.load()
	dp.policies.load()
	dp.services.load()
	if err := dp.settings.setMonitor(0); err != nil { // who died may have left it on
		return nil, err
	}
	return dp, dp.attach(cfg)
}

// attach puts the programs behind the pinned links.
func (dp *datapath) attach(cfg Config) error {
	o := dp.obj
	tcx := bpfattach.HaveTCX(o.FromUplink)
	switch {
	case dp.att.way == attachTCX && !tcx:
		return model.Errorf(model.ErrInvalid, "ebpf driver: this kernel lacks TCX, which Linux 6.6 and later have: %w", ebpf.ErrNotSupported)
	case dp.att.way == "" && tcx:
		dp.att.way = attachTCX
	case dp.att.way == "":
		dp.att.way = attachClsact
	}
	uplink, err := dp.devices.uplinkName()
	if err != nil {
		return fmt.Errorf("ebpf driver: %w", err)
	}
	return dp.att.open(func(name string, wasUplink bool) *ebpf.Program {
		ifname, dir, _ := strings.Cut(name, ":")
		switch {
		case dir == belowPinDir:
			return o.FromUnderlay
		case ifname == cfg.Device:
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

// fills returns the fill levels of all maps that evict entries.
func (dp *datapath) fills() []*fill {
	return []*fill{&dp.conns.open, &dp.conns.half, &dp.conntrack.frags.fill, &dp.counters.hits.fill, &dp.services.affinities.lru.fill}
}

// repairs counts and logs what the driver restored after somebody else had removed or
// changed it.
type repairs struct {
	drift *driver.Drift
	log   *slog.Logger
}

// note records n restored objects of a kind, one of the Drift constants of the driver package.
func (r repairs) note(kind, object string, n int) { r.drift.Add(r.log, kind, object, n) }

// program records that a program was missing on an interface.
func (r repairs) program(was bool, name string) {
	if was {
		r.note(driver.DriftProgram, name, 1)
	}
}
