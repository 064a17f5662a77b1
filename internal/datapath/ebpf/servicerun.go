package ebpf

import (
	"errors"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceRun changes the services in one Apply. Its sets and lists are the work that is left
// after all services are written.
type serviceRun struct {
	s    *serviceState
	maps *serviceTables
	run  *applyRun

	moved           map[domainAddr]bool // virtual addresses whose owner may be another one
	exposedServices map[addr]bool       // addresses that may lead clients outside elsewhere
	removedServices []backendKey        // that nothing refers to any more
	numbers         map[uint32]*servedService
	tables          map[uint32]bool // of choices
	clients         map[uint64]bool // seeds of services that are gone
	narrowed        bool            // some service has lost addresses or ports: translations may have ended

	frontends   map[frontendKey]bool // that may lead elsewhere
	sharedVIPs  map[domainAddr]bool  // with such frontends
	exposedVIPs map[addr]bool
	stalePorts  []vipPortKey // that nothing leads to any more
	sources     map[*sourceSet]bool
}

func newServiceRun(s *serviceState, run *applyRun) *serviceRun {
	return &serviceRun{
		s: s, maps: s.maps, run: run,
		moved: map[domainAddr]bool{}, exposedServices: map[addr]bool{}, numbers: map[uint32]*servedService{}, tables: map[uint32]bool{}, clients: map[uint64]bool{},
		frontends: map[frontendKey]bool{}, sharedVIPs: map[domainAddr]bool{}, exposedVIPs: map[addr]bool{}, sources: map[*sourceSet]bool{},
	}
}

// numbered is a service under the number that it has, or under a new one when its
// ports are others, and as it was; nil = it is new.
func (r *serviceRun) numbered(s *desired.Service) (x, was *servedService) {
	if was = r.s.of[s.Key]; was == nil {
		was = r.s.leftover[s.Seed()]
		delete(r.s.leftover, s.Seed())
	}
	pools := poolMask(s)
	if was != nil && was.pools == pools && maps.Equal(was.ports, portsOf(was.number, s)) {
		return was, was
	}
	r.s.number++
	x = &servedService{number: r.s.number, seed: s.Seed(), pools: pools, index: map[uint64]uint32{}}
	if was != nil { // translations and what clients stay with name backends by their index
		maps.Copy(x.index, was.index)
	}
	return x, was
}

// putService writes what differs of a service. Until its virtual addresses lead there
// nothing of a new number is in force.
func (r *serviceRun) putService(s *desired.Service) error {
	n := r.run.networks[s.Network]
	var vips []domainAddr
	if s.IPv4.IsValid() {
		vips = append(vips, domainAddr{uint32(n.Domain()), toAddr(s.IPv4)})
	}
	if s.IPv6.IsValid() {
		vips = append(vips, domainAddr{uint32(n.Domain()), toAddr(s.IPv6)})
	}
	var open []domainAddr
	if s.Exposed {
		open = vips
	}
	x, was := r.numbered(s)
	old := r.s.of[s.Key]
	frontends, err := r.frontendsOf(x.number, s, n.Domain())
	if err == nil {
		err = errors.Join(r.maps.VIPs.room(vips...), r.maps.Exposed.room(exposedAddrs(open)...), r.maps.Services.room(x.number), r.checkFrontendRoom(frontends))
	}
	if err != nil {
		r.dropService(s.Key)
		return err
	}
	before := r.run.w.changes
	ports := portsOf(x.number, s)
	for k, v := range ports {
		if err := r.maps.ServicePorts.put(k, v); err != nil {
			return r.undo(s.Key, x, ports, err)
		}
	}
	x.ports = ports
	entry, gone, err := r.putBackends(x, s)
	if err == nil {
		err = r.putHeader(x.number, entry)
	}
	if err != nil {
		return r.undo(s.Key, x, ports, err)
	}
	r.removedServices = append(r.removedServices, gone...)
	if old != nil && old != x {
		r.numbers[old.number] = old
	}
	if old == nil || old != x || !slices.Equal(old.vips, vips) {
		r.moveVIPs(s.Key, old, vips)
	}
	var wasOpen []domainAddr
	if old != nil {
		wasOpen = old.open
		x.frontends, x.exposedVIPs = old.frontends, old.exposedVIPs
	}
	r.expose(s.Key, wasOpen, open)
	// The frontends that an earlier process has written are not known. was may be x.
	if was != nil && (old == nil || hasFewerTargets(was, x, vips, s.Exposed) || lostFrontends(x.frontends, frontends)) {
		r.narrowed = true
	}
	r.putFrontend(s.Key, x, frontends)
	r.exposeFrontends(s.Key, x, exposedVIPs(s))
	x.vips, x.open, x.exposed = vips, open, s.Exposed
	r.s.of[s.Key] = x
	if r.run.w.changes != before {
		r.s.generations.add(vips...)
		for at := range vipsOf(frontends) {
			r.s.generations.add(r.addrsOf(at)...)
		}
	}
	return nil
}

// undo takes back what there was no room for.
func (r *serviceRun) undo(key model.ServiceKey, x *servedService, ports map[vipPortKey]vipPortEntry, err error) error {
	x.ports = ports
	r.numbers[x.number] = x
	r.dropService(key)
	return err
}

// moveVIPs moves a service's claims to other virtual addresses.
func (r *serviceRun) moveVIPs(key model.ServiceKey, old *servedService, vips []domainAddr) {
	if old != nil {
		for _, a := range old.vips {
			r.s.vipOwners[a] = slices.DeleteFunc(r.s.vipOwners[a], func(k model.ServiceKey) bool { return k == key })
			r.moved[a] = true
			r.s.generations.add(a)
		}
	}
	for _, a := range vips {
		r.s.vipOwners[a] = append(r.s.vipOwners[a], key)
		slices.SortFunc(r.s.vipOwners[a], compareServices)
		if len(r.s.vipOwners[a]) > 1 || r.leadsTo(a) != 0 {
			r.narrowed = true // it may take another service's address
		}
		r.moved[a] = true
		r.s.generations.add(a)
	}
}

// dropService has a service taken out.
func (r *serviceRun) dropService(key model.ServiceKey) {
	x := r.s.of[key]
	if x == nil {
		return
	}
	r.moveVIPs(key, x, nil)
	r.expose(key, x.open, nil)
	r.putFrontend(key, x, nil)
	r.exposeFrontends(key, x, nil)
	r.numbers[x.number] = x
	r.clients[x.seed] = true
	delete(r.s.of, key)
}

// finish lets virtual addresses lead where they now do, and then takes out
// what nothing leads to.
func (r *serviceRun) finish() error {
	if r.run.scratch {
		for a := range r.maps.VIPs.have {
			if n := r.maps.VIPs.have[a]; n != 0 && a.Domain&allNodes == 0 {
				r.moved[a] = true
			}
		}
	}
	r.moveNodes()
	if err := r.putFrontends(); err != nil {
		return err
	}
	for a := range r.moved {
		to := uint32(0)
		if claims := r.s.vipOwners[a]; len(claims) > 0 {
			to = r.s.of[claims[0]].number
		} else {
			delete(r.s.vipOwners, a)
			to = r.leadsTo(a)
		}
		var err error
		if to != 0 {
			err = r.maps.VIPs.put(a, to)
		} else {
			r.s.generations.add(a)
			err = r.maps.VIPs.del(a)
		}
		if err != nil {
			return err
		}
	}
	for a := range r.maps.VIPs.have {
		if at := (domainAddr{a.Domain &^ allNodes, a.IP}); a != at && r.s.sharedVIPs.count[at] == 0 {
			if err := r.maps.VIPs.del(a); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(r.putServiceAddrs(), r.putExposed(), r.publishServiceFlags()); err != nil {
		return err
	}
	return r.remove()
}

// putServiceAddrs lets the link-local service addresses lead to who asks itself, in
// the domains that have services.
func (r *serviceRun) putServiceAddrs() error {
	wanted := map[domainAddr]bool{}
	for a := range r.s.vipOwners {
		wanted[domainAddr{a.Domain, toAddr(desired.ServiceAddr)}] = true
		wanted[domainAddr{a.Domain, toAddr(desired.ServiceAddr6)}] = true
	}
	for at, n := range r.s.sharedVIPs.count {
		if n > 0 {
			wanted[domainAddr{at.Domain, toAddr(desired.ServiceAddr)}] = true
			wanted[domainAddr{at.Domain, toAddr(desired.ServiceAddr6)}] = true
		}
	}
	for a := range wanted {
		if err := r.maps.VIPs.put(a, 0); err != nil {
			return err
		}
	}
	for a, n := range r.maps.VIPs.have {
		if n == 0 && !wanted[a] {
			if err := r.maps.VIPs.del(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// publishServiceFlags tells the programs whether there are any.
func (r *serviceRun) publishServiceFlags() error {
	s := r.s.settings.get()
	if s.Services = 0; len(r.maps.VIPs.have) > 0 {
		s.Services = servicesAny
	}
	if len(r.maps.Exposed.have) > 0 {
		s.Services |= servicesExposed
	}
	return r.s.settings.put(s)
}

// remove takes out what no packet is led to any more.
func (r *serviceRun) remove() error {
	if r.narrowed || len(r.numbers)+len(r.tables)+len(r.stalePorts) > 0 {
		waitForPackets() // a packet under way would find no backend there
	}
	for n, x := range r.numbers {
		if len(x.vips)+len(x.index) > 0 { // in force until now
			for choice := range backendTables {
				r.tables[tableKey(n, choice)] = true
			}
		}
		if err := r.maps.Services.del(n); err != nil {
			return err
		}
		for k := range x.ports {
			if err := r.maps.ServicePorts.del(k); err != nil {
				return err
			}
		}
		for _, i := range x.index {
			r.removedServices = append(r.removedServices, backendKey{n, i})
		}
	}
	if err := r.removeFrontends(); err != nil {
		return err
	}
	for _, k := range r.removedServices {
		if err := r.maps.Backends.del(k); err != nil {
			return err
		}
	}
	if r.run.scratch {
		for seed := range r.s.leftover { // the maps had it, and no desired state names it
			r.clients[seed] = true
		}
		clear(r.s.leftover)
		if err := errors.Join(r.maps.Services.sweep(), r.maps.ServicePorts.sweep(), r.maps.Backends.sweep()); err != nil {
			return err
		}
		r.maps.VIPs.wanted, r.maps.Exposed.wanted = nil, nil
	}
	if err := r.dropTables(); err != nil {
		return err
	}
	if r.narrowed || len(r.clients) > 0 {
		// Also what its next packet would find ended: the port may be back by then.
		if err := r.s.translations.end(func(t translation) bool { return r.clients[t.Seed] || r.narrowed && !r.continues(t) }); err != nil {
			return err
		}
	}
	if len(r.clients) == 0 {
		return nil
	}
	if err := r.s.affinities.forget(r.clients); err != nil {
		return err
	}
	if err := r.s.counts.free(func(c serviceCounterKey) bool { return r.clients[c.Seed] }); err != nil {
		return writeError{err}
	}
	return nil
}
