package ebpf

import (
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services are numbered; a virtual address leads to a number, under which ports,
// backends and what a choice rests on stand. A service whose ports change gets
// another number, so that no packet meets new ports with old backends; its backends
// change in place, each by one write, and what is chosen among by another one.

// serviceTables are the maps of services.
type serviceTables struct {
	VIPs         table[domainAddr, uint32]       `map:"vips"` // service by virtual address
	Exposed      table[exposedKey, exposedEntry] `map:"exposed"`
	Services     table[uint32, service]          `map:"services"`
	ServicePorts table[vipPortKey, vipPortEntry] `map:"service_ports"`
	Sources      table[subnetKey, uint32]        `map:"sources"`
	Backends     table[backendKey, backendEntry] `map:"backends"`
}

// serviceState is the state of services beside the entries of the maps. A serviceRun changes it.
// Driver.mu guards it.
type serviceState struct {
	maps         *serviceTables
	slots        *slotTables
	settings     *programSettings
	generations  *generations
	translations *translations
	affinities   *affinities
	counts       *serviceCounters

	of         map[model.ServiceKey]*servedService
	leftover   map[uint64]*servedService         // by seed, that the maps hold and no desired state has named yet
	vipOwners  map[domainAddr][]model.ServiceKey // by virtual address, sorted: the first has it
	exposed    map[addr][]model.ServiceKey       // by address, sorted: the ones that external clients may use
	sharedVIPs sharedVIPs
	networks   map[model.NetworkID]desired.Domain // as of the last desired state
	number     uint32                             // last one given
	generation uint64
}

// servedService is one of them as the maps hold it.
type servedService struct {
	number      uint32
	seed        uint64
	vips        []domainAddr
	open        []domainAddr // to clients outside
	exposed     bool         // to them
	pools       uint64       // which of the choices it keeps, a bit each
	frontends   map[frontendKey]frontend
	exposedVIPs []addr // shared VIPs at which clients outside ask
	ports       map[vipPortKey]vipPortEntry
	index       map[uint64]uint32    // of backends, by their numbers
	own         map[uint64][2]uint16 // their own ports, likewise
}

// load initialises the state from the tables.
func (s *serviceState) load() {
	s.of, s.leftover, s.vipOwners = map[model.ServiceKey]*servedService{}, map[uint64]*servedService{}, map[domainAddr][]model.ServiceKey{}
	s.exposed, s.networks = map[addr][]model.ServiceKey{}, map[model.NetworkID]desired.Domain{}
	of := map[uint32]*servedService{} // by number
	for n, v := range s.maps.Services.have {
		of[n] = &servedService{number: n, seed: v.Seed, pools: v.Pools, ports: map[vipPortKey]vipPortEntry{}, index: map[uint64]uint32{}}
		s.leftover[v.Seed] = of[n]
		s.number, s.generation = max(s.number, n), max(s.generation, v.Generation)
	}
	for k, v := range s.maps.Backends.have {
		s.number = max(s.number, k.Service)
		if x := of[k.Service]; x != nil {
			x.index[v.ID] = k.Index
		}
	}
	for k, v := range s.maps.ServicePorts.have {
		s.number = max(s.number, k.VIP)
		if x := of[k.VIP]; x != nil {
			x.ports[k] = v
		}
	}
	for a, n := range s.maps.VIPs.have {
		if x := of[n]; x != nil {
			x.vips = append(x.vips, a)
		}
	}
	s.loadSharedVIPs(of)
}

// begin reads the state from the maps again if the Apply compares everything.
func (s *serviceState) begin(run *applyRun) {
	if run.scratch {
		s.load()
		s.maps.VIPs.begin()
		s.maps.Exposed.begin()
		s.maps.Services.begin()
		s.maps.ServicePorts.begin()
		s.maps.Sources.begin()
		s.maps.Backends.begin()
	}
}

// put writes the services that differ, and those of networks that do.
func (s *serviceState) put(run *applyRun) error {
	todo := map[model.ServiceKey]bool{}
	for c := range run.want.Services.Diff(run.last.Services) {
		todo[c.Key] = true
	}
	if moved := s.movedNetworks(run); len(moved) > 0 {
		for key, want := range run.want.Services.All() {
			if moved[want.Network] {
				todo[key] = true
			}
		}
	}
	if len(todo) == 0 && !run.scratch && !differs(run.want.NodeAddrs, s.sharedVIPs.nodes) {
		return nil
	}
	r := newServiceRun(s, run)
	for key := range todo {
		want, ok := run.want.Services.Get(key)
		var err error
		if ok {
			err = want.Check(key, run.networks[want.Network] != nil)
		}
		if !ok || err != nil {
			r.dropService(key)
		} else {
			err = r.putService(want)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			run.problem("service "+key.String(), err)
		}
	}
	return r.finish()
}

// movedNetworks are networks that came, went, or changed their domain.
func (s *serviceState) movedNetworks(run *applyRun) map[model.NetworkID]bool {
	moved := map[model.NetworkID]bool{}
	for id, n := range run.networks {
		if was, ok := s.networks[id]; !ok || was != n.Domain() {
			moved[id] = true
			s.networks[id] = n.Domain()
		}
	}
	for id := range s.networks {
		if run.networks[id] == nil {
			moved[id] = true
			delete(s.networks, id)
		}
	}
	return moved
}

// portsOf are the ports of a service under a number.
func portsOf(number uint32, s *desired.Service) map[vipPortKey]vipPortEntry {
	out := map[vipPortKey]vipPortEntry{}
	for _, o := range s.Ports {
		out[vipPortKey{VIP: number, Port: o.Port, Proto: uint8(o.Protocol)}] = vipPortEntry{Service: number, Port: o.Backend, Inside: uint8(s.InternalPolicy), Outside: uint8(s.ExternalPolicy), Exposed: 1}
	}
	return out
}

// hasFewerTargets reports whether existing translations of a service may be invalid now: it has
// lost an address or a port, or a port of UDP has another target, or external clients no
// longer reach it. vips are its next addresses.
func hasFewerTargets(was, x *servedService, vips []domainAddr, exposed bool) bool {
	if was.exposed && !exposed {
		return true
	}
	for k, v := range was.ports {
		if !x.hasPort(k.Port, k.Proto, v.Port) {
			return true
		}
	}
	return slices.ContainsFunc(was.vips, func(a domainAddr) bool { return !slices.Contains(vips, a) })
}

// hasPort reports whether connections by a port that led to one of the backends' go on.
func (x *servedService) hasPort(port uint16, proto uint8, to uint16) bool {
	v, ok := x.ports[vipPortKey{VIP: x.number, Port: port, Proto: proto}]
	return ok && (v.Port == to || proto != uint8(model.ProtoUDP))
}

// continues reports whether the frontend of a translation still leads to its service.
func (r *serviceRun) continues(t translation) bool {
	x, to, ok := r.frontendAt(frontendKey{domainAddr{t.ClientKey.Domain, t.ClientKey.Hi}, t.ClientKey.HiPort, t.ClientKey.Proto})
	if !ok || x.seed != t.Seed || t.ClientKey.Pad == clientSideExternal && !x.exposed {
		return false
	}
	family := 1
	if t.Backend.netip().Is4() {
		family = 0
	}
	if own := x.own[t.ID][family]; own != 0 {
		to.Port = own
	}
	return to.Port == t.BackendPort || t.ClientKey.Proto != uint8(model.ProtoUDP)
}

// seeds returns the services by their seeds.
func (s *serviceState) seeds() map[uint64]*servedService {
	out := map[uint64]*servedService{}
	for _, x := range s.of {
		out[x.seed] = x
	}
	return out
}

// affinityTimes returns how long clients stay with a backend, by the seeds of services.
func (s *serviceState) affinityTimes() map[uint64]time.Duration {
	out := map[uint64]time.Duration{}
	for _, x := range s.maps.Services.have {
		out[x.Seed] = time.Duration(x.Affinity)
	}
	return out
}
