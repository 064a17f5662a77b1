package ebpf

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services are numbered; a virtual address leads to a number, under which ports,
// backends and what a choice rests on stand. A service whose ports change gets
// another number, so that no packet meets new ports with old backends; its backends
// change in place, each by one write, and what is chosen among by another one.

// serving is what the driver knows of services beside what the maps hold.
type serving struct {
	of         map[model.ServiceKey]*servedService
	former     map[uint64]*servedService      // by seed, that the maps hold and no picture has named yet
	claims     map[hostKey][]model.ServiceKey // by virtual address, sorted: the first has it
	exposed    map[addr][]model.ServiceKey    // by address, sorted: those that clients outside may ask for
	spots      sharedVIPs
	networks   map[model.NetworkID]desired.Domain // as of the last picture
	number     uint32                             // last one given
	generation uint64
}

// servedService is one of them as the maps hold it.
type servedService struct {
	number      uint32
	seed        uint64
	vips        []hostKey
	open        []hostKey // to clients outside
	exposed     bool      // to them, or perhaps
	pools       uint64    // which of the choices it keeps, a bit each
	frontends   map[frontendKey]frontend
	exposedVIPs []addr // spots at which clients outside ask
	ports       map[frontKey]frontEntry
	index       map[uint64]uint32 // of backends, by their numbers
	own         map[uint64]uint16 // their own ports, likewise
}

// begin takes over what the maps hold.
func (s *serving) begin(d *Driver) {
	*s = serving{
		of: map[model.ServiceKey]*servedService{}, former: map[uint64]*servedService{}, claims: map[hostKey][]model.ServiceKey{},
		exposed: map[addr][]model.ServiceKey{}, networks: map[model.NetworkID]desired.Domain{}, number: s.number, generation: s.generation,
	}
	of := map[uint32]*servedService{} // by number
	for n, v := range d.services.have {
		of[n] = &servedService{number: n, seed: v.Seed, pools: v.Pools, ports: map[frontKey]frontEntry{}, index: map[uint64]uint32{}, exposed: true}
		s.former[v.Seed] = of[n]
		s.number, s.generation = max(s.number, n), max(s.generation, v.Generation)
	}
	for k, v := range d.backends.have {
		s.number = max(s.number, k.Service)
		if x := of[k.Service]; x != nil {
			x.index[v.ID] = k.Index
		}
	}
	for k, v := range d.servicePorts.have {
		s.number = max(s.number, k.VIP)
		if x := of[k.VIP]; x != nil {
			x.ports[k] = v
		}
	}
	for a, n := range d.vips.have {
		if x := of[n]; x != nil {
			x.vips = append(x.vips, a)
		}
	}
	s.loadSharedVIPs(d, of)
}

func (p *applyRun) beginServices() {
	if p.scratch {
		p.serving.begin(p.Driver)
		p.vips.begin()
		p.exposed.begin()
		p.services.begin()
		p.servicePorts.begin()
		p.sources.begin()
		p.backends.begin()
	}
}

// serviceRun is what an Apply has to do once all services are written.
type serviceRun struct {
	moved    map[hostKey]bool // virtual addresses whose owner may be another one
	exposed  map[addr]bool    // addresses that may lead clients outside elsewhere
	left     []backendKey     // that nothing refers to any more
	numbers  map[uint32]*servedService
	tables   map[uint32]bool           // of choices
	clients  map[uint64]bool           // seeds of services that are gone
	narrowed map[uint64]*servedService // by seed, that have lost addresses or ports

	frontends   map[frontendKey]bool // that may lead elsewhere
	spots       map[hostKey]bool     // with such faces
	exposedVIPs map[addr]bool
	fronts      []frontKey // that nothing leads to any more
	sources     map[*sourceSet]bool
}

func newServicePass() *serviceRun {
	return &serviceRun{
		moved: map[hostKey]bool{}, exposed: map[addr]bool{}, numbers: map[uint32]*servedService{}, tables: map[uint32]bool{}, clients: map[uint64]bool{}, narrowed: map[uint64]*servedService{},
		frontends: map[frontendKey]bool{}, spots: map[hostKey]bool{}, exposedVIPs: map[addr]bool{}, sources: map[*sourceSet]bool{},
	}
}

// putServices writes the services that differ, and those of networks that do.
func (p *applyRun) putServices() error {
	todo := map[model.ServiceKey]bool{}
	for c := range p.want.Services.Diff(p.last.Services) {
		todo[c.Key] = true
	}
	if moved := p.movedNetworks(); len(moved) > 0 {
		for key, s := range p.want.Services.All() {
			if moved[s.Network] {
				todo[key] = true
			}
		}
	}
	if len(todo) == 0 && !p.scratch && !differs(p.want.NodeAddrs, p.serving.spots.nodes) {
		return nil
	}
	after := newServicePass()
	for key := range todo {
		s, ok := p.want.Services.Get(key)
		var err error
		if ok {
			err = s.Check(key, p.networks[s.Network] != nil)
		}
		if !ok || err != nil {
			p.dropService(after, key)
		} else {
			err = p.putService(after, s)
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			p.problem("service "+key.String(), err)
		}
	}
	return p.finishServices(after)
}

// movedNetworks are those that came, went, or are of another domain.
func (p *applyRun) movedNetworks() map[model.NetworkID]bool {
	moved := map[model.NetworkID]bool{}
	for id, n := range p.networks {
		if was, ok := p.serving.networks[id]; !ok || was != n.Domain() {
			moved[id] = true
			p.serving.networks[id] = n.Domain()
		}
	}
	for id := range p.serving.networks {
		if p.networks[id] == nil {
			moved[id] = true
			delete(p.serving.networks, id)
		}
	}
	return moved
}

// portsOf are the ports of a service under a number.
func portsOf(number uint32, s *desired.Service) map[frontKey]frontEntry {
	out := map[frontKey]frontEntry{}
	for _, o := range s.Ports {
		out[frontKey{VIP: number, Port: o.Port, Proto: uint8(o.Protocol)}] = frontEntry{Service: number, Port: o.Backend, Inside: uint8(s.InternalPolicy), Outside: uint8(s.ExternalPolicy), Exposed: 1}
	}
	return out
}

// numbered is a service under the number that it has, or under a new one when its
// ports are others, and as it was; nil = it is new.
func (p *applyRun) numbered(s *desired.Service) (x, was *servedService) {
	if was = p.serving.of[s.Key]; was == nil {
		was = p.serving.former[s.Seed()]
		delete(p.serving.former, s.Seed())
	}
	pools := poolMask(s)
	if was != nil && was.pools == pools && maps.Equal(was.ports, portsOf(was.number, s)) {
		return was, was
	}
	p.serving.number++
	x = &servedService{number: p.serving.number, seed: s.Seed(), pools: pools, index: map[uint64]uint32{}}
	if was != nil { // translations and what clients stay with name backends by their index
		maps.Copy(x.index, was.index)
	}
	return x, was
}

// narrower tells whether translations that a service had may be none of its any more:
// it has lost an address or a port, or a port of UDP leads elsewhere, or clients outside
// reach it no more. vips are those that it gets.
func narrower(was, x *servedService, vips []hostKey, exposed bool) bool {
	if was.exposed && !exposed {
		return true
	}
	for k, v := range was.ports {
		if !x.hasPort(k.Port, k.Proto, v.Port) {
			return true
		}
	}
	return slices.ContainsFunc(was.vips, func(a hostKey) bool { return !slices.Contains(vips, a) })
}

// hasPort tells whether connections by a port that led to one of the backends' go on.
func (x *servedService) hasPort(port uint16, proto uint8, to uint16) bool {
	v, ok := x.ports[frontKey{VIP: x.number, Port: port, Proto: proto}]
	return ok && (v.Port == to || proto != uint8(model.ProtoUDP))
}

// has tells whether a translation that the service had is its still.
func (x *servedService) has(p *applyRun, t translation) bool {
	if t.Front.Pad == asClientOutside && !x.exposed {
		return false
	}
	to, ok := x.frontendOf(p, t)
	if slices.Contains(x.vips, hostKey{t.Front.Domain, t.Front.Hi}) {
		to, ok = x.ports[frontKey{VIP: x.number, Port: t.Front.HiPort, Proto: t.Front.Proto}]
	}
	if own := x.own[t.ID]; own != 0 {
		to.Port = own
	}
	return ok && (to.Port == t.BackendPort || t.Front.Proto != uint8(model.ProtoUDP))
}

// putService writes what differs of a service. Until its virtual addresses lead there
// nothing of a new number is in force.
func (p *applyRun) putService(after *serviceRun, s *desired.Service) error {
	n := p.networks[s.Network]
	var vips []hostKey
	if s.IPv4.IsValid() {
		vips = append(vips, hostKey{uint32(n.Domain()), toAddr(s.IPv4)})
	}
	if s.IPv6.IsValid() {
		vips = append(vips, hostKey{uint32(n.Domain()), toAddr(s.IPv6)})
	}
	var open []hostKey
	if s.Exposed {
		open = vips
	}
	x, was := p.numbered(s)
	old := p.serving.of[s.Key]
	faces, err := p.frontendsOf(after, x.number, s, n.Domain())
	if err == nil {
		err = errors.Join(p.vips.room(vips...), p.exposed.room(ipsOf(open)...), p.services.room(x.number), p.checkFrontendRoom(faces))
	}
	if err != nil {
		p.dropService(after, s.Key)
		return err
	}
	before := p.w.changes
	ports := portsOf(x.number, s)
	for k, v := range ports {
		if err := p.servicePorts.put(k, v); err != nil {
			return p.undone(after, s.Key, x, ports, err)
		}
	}
	x.ports = ports
	entry, gone, err := p.putBackends(x, s)
	if err == nil {
		err = p.putHeader(after, x.number, entry)
	}
	if err != nil {
		return p.undone(after, s.Key, x, ports, err)
	}
	after.left = append(after.left, gone...)
	if old != nil && old != x {
		after.numbers[old.number] = old
	}
	if old == nil || old != x || !slices.Equal(old.vips, vips) {
		p.claim(after, s.Key, old, vips)
	}
	var wasOpen []hostKey
	if old != nil {
		wasOpen = old.open
		x.frontends, x.exposedVIPs = old.frontends, old.exposedVIPs
	}
	p.expose(after, s.Key, wasOpen, open)
	if was != nil && (narrower(was, x, vips, s.Exposed) || lostFrontends(x.frontends, faces)) { // was may be x
		after.narrowed[x.seed] = x
	}
	p.putFrontend(after, s.Key, x, faces)
	p.exposeFrontends(after, s.Key, x, exposedVIPs(s))
	x.vips, x.open, x.exposed = vips, open, s.Exposed
	p.serving.of[s.Key] = x
	if p.w.changes != before {
		p.generations.add(vips...)
		for at := range vipsOf(faces) {
			p.generations.add(p.addrsOf(at)...)
		}
	}
	return nil
}

// undone takes back what there was no room for.
func (p *applyRun) undone(after *serviceRun, key model.ServiceKey, x *servedService, ports map[frontKey]frontEntry, err error) error {
	x.ports = ports
	after.numbers[x.number] = x
	p.dropService(after, key)
	return err
}

// claim moves a service's claims to other virtual addresses.
func (p *applyRun) claim(after *serviceRun, key model.ServiceKey, old *servedService, vips []hostKey) {
	if old != nil {
		for _, a := range old.vips {
			p.serving.claims[a] = slices.DeleteFunc(p.serving.claims[a], func(k model.ServiceKey) bool { return k == key })
			after.moved[a] = true
			p.generations.add(a)
		}
	}
	for _, a := range vips {
		p.serving.claims[a] = append(p.serving.claims[a], key)
		slices.SortFunc(p.serving.claims[a], func(a, b model.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
		after.moved[a] = true
		p.generations.add(a)
	}
}

// dropService has a service taken out.
func (p *applyRun) dropService(after *serviceRun, key model.ServiceKey) {
	x := p.serving.of[key]
	if x == nil {
		return
	}
	p.claim(after, key, x, nil)
	p.expose(after, key, x.open, nil)
	p.putFrontend(after, key, x, nil)
	p.exposeFrontends(after, key, x, nil)
	after.numbers[x.number] = x
	after.clients[x.seed] = true
	delete(p.serving.of, key)
}

// finishServices lets virtual addresses lead where they now do, and then takes out
// what nothing leads to.
func (p *applyRun) finishServices(after *serviceRun) error {
	if p.scratch {
		for a := range p.vips.have {
			if n := p.vips.have[a]; n != 0 && a.Domain&allNodes == 0 {
				after.moved[a] = true
			}
		}
	}
	p.moveNodes(after)
	if err := p.putFrontends(after); err != nil {
		return err
	}
	for a := range after.moved {
		to := uint32(0)
		if claims := p.serving.claims[a]; len(claims) > 0 {
			to = p.serving.of[claims[0]].number
		} else {
			delete(p.serving.claims, a)
			to = p.leadsTo(a)
		}
		var err error
		if to != 0 {
			err = p.vips.put(a, to)
		} else {
			p.generations.add(a)
			err = p.vips.del(a)
		}
		if err != nil {
			return err
		}
	}
	for a := range p.vips.have {
		if at := (hostKey{a.Domain &^ allNodes, a.IP}); a != at && p.serving.spots.count[at] == 0 {
			if err := p.vips.del(a); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(p.putServiceAddrs(), p.putExposed(after), p.tellServices()); err != nil {
		return err
	}
	return p.removeServices(after)
}

// putServiceAddrs lets the link-local service addresses lead to who asks itself, in
// the domains that have services.
func (p *applyRun) putServiceAddrs() error {
	wanted := map[hostKey]bool{}
	for a := range p.serving.claims {
		wanted[hostKey{a.Domain, toAddr(desired.ServiceAddr)}] = true
		wanted[hostKey{a.Domain, toAddr(desired.ServiceAddr6)}] = true
	}
	for at, n := range p.serving.spots.count {
		if n > 0 {
			wanted[hostKey{at.Domain, toAddr(desired.ServiceAddr)}] = true
			wanted[hostKey{at.Domain, toAddr(desired.ServiceAddr6)}] = true
		}
	}
	for a := range wanted {
		if err := p.vips.put(a, 0); err != nil {
			return err
		}
	}
	for a, n := range p.vips.have {
		if n == 0 && !wanted[a] {
			if err := p.vips.del(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellServices tells the programs whether there are any.
func (p *applyRun) tellServices() error {
	s := p.settings.have[0]
	if s.Services = 0; len(p.vips.have) > 0 {
		s.Services = servicesAny
	}
	if len(p.exposed.have) > 0 {
		s.Services |= servicesExposed
	}
	return p.settings.put(0, s)
}

// removeServices takes out what no packet is led to any more.
func (p *applyRun) removeServices(after *serviceRun) error {
	if len(after.numbers)+len(after.tables)+len(after.narrowed)+len(after.fronts) > 0 {
		grace() // a packet under way would find nobody where it is led to
	}
	for n, x := range after.numbers {
		if len(x.vips)+len(x.index) > 0 { // in force until now
			for choice := range backendTables {
				after.tables[tableKey(n, choice)] = true
			}
		}
		if err := p.services.del(n); err != nil {
			return err
		}
		for k := range x.ports {
			if err := p.servicePorts.del(k); err != nil {
				return err
			}
		}
		for _, i := range x.index {
			after.left = append(after.left, backendKey{n, i})
		}
	}
	if err := p.removeFrontends(after); err != nil {
		return err
	}
	for _, k := range after.left {
		if err := p.backends.del(k); err != nil {
			return err
		}
	}
	if p.scratch {
		for seed := range p.serving.former { // the maps had it, and no picture names it
			after.clients[seed] = true
		}
		clear(p.serving.former)
		if err := errors.Join(p.services.sweep(), p.servicePorts.sweep(), p.backends.sweep()); err != nil {
			return err
		}
		p.vips.wanted, p.exposed.wanted = nil, nil
	}
	if err := p.dropTables(after); err != nil {
		return err
	}
	if len(after.clients)+len(after.narrowed) > 0 {
		// Also what its next packet would find ended: the port may be back by then.
		if err := p.endTranslations(func(t translation) bool {
			x := after.narrowed[t.Seed]
			return after.clients[t.Seed] || x != nil && !x.has(p, t)
		}); err != nil {
			return err
		}
	}
	return p.forgetClients(after.clients)
}
