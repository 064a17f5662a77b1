package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services has the load-balanced services of tenants, with the endpoints that provide
// them.
//
// Takes: service rows; marked endpoints, networks and providers; hosts, routing, exposure,
// whether this host speaks BGP.
// Gives: Services and their DNS.Records; which tenants have networks that every host has,
// to routing; marks networks.
type Services struct {
	rows          map[model.ServiceKey]*service
	speaksBGP     bool
	dirty         *marks[*service]
	dirtyBackends map[*service]set[*endpoint]

	inv            *inventory
	hosts          *Hosts
	routing        *routing
	exposure       *exposure
	out            *output
	problems       *problems
	dirtyNetworks  *marks[*network]
	dirtyEps       *marks[*endpoint]
	dirtyProviders *marks[*endpoint]
}

// service is what is known about one service, and its backends as compiled.
type service struct {
	// Services:
	key      model.ServiceKey
	rec      *model.Service         // nil = deleted
	closed   bool                   // rec is what is left of it
	net      *network               // of rec
	found    *model.ServiceSelector // under which net.services has it
	members  set[*endpoint]         // whose labels it selects, in the desired state or not
	backends desired.Map[model.EndpointKey, *desired.Backend]

	// exposure:
	claims [2]netip.Addr // at which it wants to be exposed
}

// serviceIndex is what a network with services has besides, so that neither an
// endpoint's change looks at all services nor a service's at all endpoints.
type serviceIndex struct {
	all       set[*service]
	bySelect  map[model.ServiceSelector]set[*service] // by one of their selectors
	endpoints map[model.ServiceSelector]set[*endpoint]
	// The network's number and encapsulation, and whether it was parted, when its services
	// were compiled.
	at     model.NetworkID
	encap  model.Encap
	parted bool
}

func (sv *Services) put(v model.Service) {
	s := lookup(sv.rows, v.Key, func() *service { return &service{key: v.Key, members: set[*endpoint]{}} })
	moved := s.rec == nil || s.rec.NetworkKey() != v.NetworkKey() || !slices.Equal(s.rec.Selectors, v.Selectors)
	if moved {
		sv.leaveNetwork(s)
	}
	s.rec, s.closed = &v, false
	if moved {
		sv.joinNetwork(s)
	}
	sv.dirty.add(s)
}

// Close leaves nothing of a service that has been deleted but its addresses,
// where everybody is refused, and returns these; false = somebody else has them, or
// there is no such service.
func (sv *Services) Close(k model.ServiceKey) (v4, v6 netip.Addr, ok bool) {
	s := sv.rows[k]
	if s == nil || s.rec == nil {
		return v4, v6, false
	}
	v4, v6 = s.rec.Addrs()
	taken := func(a, b netip.Addr) bool { return a.IsValid() && a == v4 || b.IsValid() && b == v6 }
	for other, o := range sv.rows {
		if o != s && o.rec != nil && other.Tenant == k.Tenant && taken(o.rec.Addrs()) {
			return v4, v6, false
		}
	}
	for e := range eachEndpoint(s.net) {
		if taken(e.IPv4, e.IPv6) {
			return v4, v6, false
		}
	}
	left := *s.rec
	left.Ports, left.Selectors = nil, nil
	sv.put(left)
	s.closed = true
	return v4, v6, true
}

func (sv *Services) remove(k model.ServiceKey) {
	if s := sv.rows[k]; s != nil {
		sv.leaveNetwork(s)
		s.rec = nil
		sv.dirty.add(s)
	}
}

// joinNetwork enters a service into its network's index, and its backends.
func (sv *Services) joinNetwork(s *service) {
	n := sv.inv.network(s.rec.NetworkKey())
	if s.net = n; n.services == nil {
		n.services = &serviceIndex{all: set[*service]{}, bySelect: map[model.ServiceSelector]set[*service]{}, endpoints: map[model.ServiceSelector]set[*endpoint]{}, at: n.id}
		for e := range eachEndpoint(n) {
			n.services.index(e, true)
		}
		sv.routing.countExposing(n, 1)
	}
	x := n.services
	x.all.add(s)
	if len(s.rec.Selectors) == 0 {
		return // no endpoint is selected
	}
	by, rarest := s.rec.Selectors[0], s.rec.Selectors[0]
	for _, sel := range s.rec.Selectors {
		if len(x.bySelect[sel]) < len(x.bySelect[by]) {
			by = sel
		}
		if len(x.endpoints[sel]) < len(x.endpoints[rarest]) {
			rarest = sel
		}
	}
	if s.found = &by; x.bySelect[by] == nil {
		x.bySelect[by] = set[*service]{}
	}
	x.bySelect[by].add(s)
	for e := range x.endpoints[rarest] {
		if s.rec.Selects(e.Labels) {
			sv.provide(s, e)
		}
	}
}

// leaveNetwork is the reverse of joinNetwork.
func (sv *Services) leaveNetwork(s *service) {
	n := s.net
	if n == nil {
		return
	}
	for e := range s.members {
		delete(e.services, s)
	}
	clear(s.members)
	delete(sv.dirtyBackends, s)
	s.backends = desired.Map[model.EndpointKey, *desired.Backend]{}
	x := n.services
	if s.found != nil {
		if delete(x.bySelect[*s.found], s); len(x.bySelect[*s.found]) == 0 {
			delete(x.bySelect, *s.found)
		}
	}
	s.net, s.found = nil, nil
	if delete(x.all, s); len(x.all) == 0 {
		n.services = nil
		sv.dirtyNetworks.add(n)
		sv.routing.countExposing(n, -1)
	}
}

// index enters an endpoint's labels, or takes them out.
func (x *serviceIndex) index(e *endpoint, in bool) {
	for k, v := range e.Labels {
		sel := model.ServiceSelector{Key: k, Value: v}
		switch {
		case !in:
			if delete(x.endpoints[sel], e); len(x.endpoints[sel]) == 0 {
				delete(x.endpoints, sel)
			}
		case x.endpoints[sel] == nil:
			x.endpoints[sel] = set[*endpoint]{e: {}}
		default:
			x.endpoints[sel].add(e)
		}
	}
}

// serve finds the services that an endpoint provides, or (not in) takes it out of
// the services that it provided.
func (sv *Services) serve(e *endpoint, in bool) {
	for s := range e.services {
		delete(s.members, e)
		sv.touchBackend(s, e)
	}
	clear(e.services)
	x := e.net.services
	if x == nil {
		return
	}
	if x.index(e, in); !in {
		return
	}
	for k, v := range e.Labels {
		for s := range x.bySelect[model.ServiceSelector{Key: k, Value: v}] {
			if s.rec.Selects(e.Labels) {
				sv.provide(s, e)
			}
		}
	}
}

func (sv *Services) provide(s *service, e *endpoint) {
	if e.services == nil {
		e.services = set[*service]{}
	}
	e.services.add(s)
	s.members.add(e)
	sv.touchBackend(s, e)
}

// SpeaksBGP records whether routes to the services with a provider on this host are
// announced to the physical network's routers. They then spread clients over such hosts,
// and stop using a dead one within a second. So a client that comes to this host gets a
// provider here while there is one, and not one on another host that may be the dead one.
func (sv *Services) SpeaksBGP(yes bool) {
	if sv.speaksBGP == yes {
		return
	}
	sv.speaksBGP = yes
	for _, s := range sv.rows {
		sv.dirty.add(s)
		for e := range s.members {
			sv.touchBackend(s, e)
		}
	}
}

// touch marks an endpoint as a backend of the services that it provides.
func (sv *Services) touch(e *endpoint) {
	for s := range e.services {
		sv.touchBackend(s, e)
	}
}

func (sv *Services) touchBackend(s *service, e *endpoint) {
	if sv.dirtyBackends[s] == nil {
		sv.dirtyBackends[s] = set[*endpoint]{}
	}
	sv.dirtyBackends[s].add(e)
}

// compile brings services and their names up to date with what has
// changed of them, of their networks and of the endpoints that provide them.
func (sv *Services) compile() {
	for n := range sv.dirtyNetworks.of {
		if x := n.services; x != nil && (x.at != n.id || x.parted != n.parted() || n.rec != nil && x.encap != n.rec.Encap) {
			x.parted = n.parted()
			if x.at = n.id; n.rec != nil {
				x.encap = n.rec.Encap
			}
			for s := range x.all {
				sv.dirty.add(s)
			}
		}
	}
	for e := range sv.dirtyEps.of {
		sv.touch(e)
	}
	for e := range sv.dirtyProviders.of {
		sv.touch(e)
	}
	for s := range sv.dirty.of {
		sv.exposure.claim(s)
	}
	for s, changed := range sv.dirtyBackends {
		for e := range changed {
			sv.putBackend(s, e)
		}
		sv.write(s)
	}
	for s := range sv.dirty.of {
		if _, done := sv.dirtyBackends[s]; !done {
			sv.write(s)
		}
		noEffect(sv.problems, "serviceLBs", s.key.String(), s.rec, true)
		sv.out.putName(desired.DNSKey{Service: s.key}, serviceName(s))
		if s.rec == nil {
			delete(sv.rows, s.key)
		}
	}
	if len(sv.dirtyBackends) > 0 {
		sv.dirtyBackends = map[*service]set[*endpoint]{}
	}
}

// putBackend writes what an endpoint that has changed is to a service. What the
// present endpoint of its key is counts, should it be another one.
func (sv *Services) putBackend(s *service, e *endpoint) {
	if e.gone {
		if n := sv.inv.networks[e.Key.Network]; n != nil && n.eps[e.Key.ID] != nil {
			e = n.eps[e.Key.ID]
		}
	}
	if _, provides := e.services[s]; !provides || !e.serves() {
		s.backends = s.backends.Delete(e.Key)
		return
	}
	b := &desired.Backend{Network: e.net.id, IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), Local: e.isPort, Near: sv.nearOf(e.isPort)}
	if e.isRemote && e.net.rec.Encap == model.EncapVXLAN {
		b.VTEP = sv.hosts.vtep(e.Host)
	}
	switch {
	case e.Unhealthy:
		b.State = desired.BackendUnhealthy
	case e.Draining:
		b.State = desired.BackendDraining
	}
	b.State = sv.hosts.spared(e, b.State)
	if old, ok := s.backends.Get(e.Key); !ok || *old != *b {
		s.backends = s.backends.Set(e.Key, b)
	}
}

// write writes a service into the desired state: where its network is in it, and it
// has an address.
func (sv *Services) write(s *service) {
	object, parted := "service "+s.key.String(), ""
	if s.rec != nil && s.net.parted() {
		parted = textParted
	}
	if s.rec == nil || s.net.id == 0 || !s.rec.VIP.IsValid() && !s.rec.VIP6.IsValid() {
		sv.out.Services = sv.out.Services.Delete(s.key)
		sv.problems.set(object, parted)
		return
	}
	pic := &desired.Service{Key: s.key, Network: s.net.id, Backends: s.backends, Ports: servicePorts(s.rec), Affinity: s.rec.AffinityTime()}
	pic.IPv4, pic.IPv6 = s.rec.Addrs()
	texts := []string{parted, sv.leadOutside(s, pic), ""}
	if n := s.backends.Len(); n > desired.MaxBackends {
		pic.Backends = firstBackends(s.backends)
		texts[2] = fmt.Sprintf("has %d providers: connections go to the first %d of them by name", n, desired.MaxBackends)
	}
	sv.problems.set(object, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; "))
	if old, ok := sv.out.before.Services.Get(s.key); ok && old.Equal(pic) {
		pic = old
	}
	sv.out.Services = sv.out.Services.Set(s.key, pic)
}

// leadOutside says how a service is reached from elsewhere than from endpoints, and
// returns what is wrong with that. A VLAN network has no tunnel by which a
// host could send in the name of somebody outside.
func (sv *Services) leadOutside(s *service, pic *desired.Service) (problem string) {
	pic.Exposed, problem = sv.exposure.of(s)
	if s.net.rec.Encap == model.EncapVLAN {
		pic.ExternalPolicy = desired.TrafficLocal
	} else if pic.Exposed && sv.speaksBGP {
		pic.ExternalPolicy = desired.TrafficNear
	}
	return problem
}

// nearOf says how near a backend of a service is, where that is asked.
func (sv *Services) nearOf(here bool) desired.Nearness {
	switch {
	case !sv.speaksBGP:
		return desired.NearUnknown
	case here:
		return desired.NearHost
	}
	return desired.NearFar
}

// firstBackends returns as many as are chosen among, by their keys.
func firstBackends(all desired.Map[model.EndpointKey, *desired.Backend]) (out desired.Map[model.EndpointKey, *desired.Backend]) {
	byName := map[string]model.EndpointKey{}
	for k := range all.All() {
		byName[k.String()] = k
	}
	for _, name := range slices.Sorted(maps.Keys(byName))[:desired.MaxBackends] {
		b, _ := all.Get(byName[name])
		out = out.Set(byName[name], b)
	}
	return out
}

// serviceName is a service's name, addresses and ports; none of one that is gone.
func serviceName(s *service) desired.DNSRecord {
	if s.rec == nil || s.closed || !s.rec.VIP.IsValid() && !s.rec.VIP6.IsValid() {
		return desired.DNSRecord{}
	}
	r := desired.DNSRecord{Network: s.rec.NetworkKey(), Service: dnsName(s.key.Name), Ports: servicePorts(s.rec)}
	r.IPv4, r.IPv6 = s.rec.Addrs()
	return r
}

func servicePorts(s *model.Service) (out []desired.ServicePort) {
	for _, p := range s.Ports {
		out = append(out, desired.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port, Backend: p.Provider})
	}
	slices.SortFunc(out, desired.CompareServicePorts)
	return out
}
