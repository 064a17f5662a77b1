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

// service is what is known about one service, and its backends as compiled.
type service struct {
	key      model.ServiceKey
	rec      *model.Service         // nil = deleted
	closed   bool                   // rec is what is left of it
	net      *network               // of rec
	found    *model.ServiceSelector // under which net.services has it
	members  set[*endpoint]         // whose labels it selects, in the picture or not
	backends desired.Map[model.EndpointKey, *desired.Backend]
	claims   [2]netip.Addr // at which it wants to be exposed
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

// serviceChanges is what the next Compile has to look at.
type serviceChanges struct {
	services set[*service]
	backends map[*service]set[*endpoint]
}

func (d *serviceChanges) backend(s *service, e *endpoint) {
	if d.backends[s] == nil {
		d.backends[s] = set[*endpoint]{}
	}
	d.backends[s].add(e)
}

// SetService records a load-balanced service.
func (c *Compiler) SetService(v model.Service) {
	s := lookup(c.services, v.Key, func() *service { return &service{key: v.Key, members: set[*endpoint]{}} })
	moved := s.rec == nil || s.rec.NetworkKey() != v.NetworkKey() || !slices.Equal(s.rec.Selectors, v.Selectors)
	if moved {
		c.leaveNetwork(s)
	}
	s.rec, s.closed = &v, false
	if moved {
		c.joinNetwork(s)
	}
	c.changed.services.add(s)
}

// CloseService leaves nothing of a service that has been deleted but its addresses,
// where everybody is refused, and returns these; false = somebody else has them, or
// there is no such service.
func (c *Compiler) CloseService(k model.ServiceKey) (v4, v6 netip.Addr, ok bool) {
	s := c.services[k]
	if s == nil || s.rec == nil {
		return v4, v6, false
	}
	v4, v6 = s.rec.Addrs()
	taken := func(a, b netip.Addr) bool { return a.IsValid() && a == v4 || b.IsValid() && b == v6 }
	for other, o := range c.services {
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
	c.SetService(left)
	s.closed = true
	return v4, v6, true
}

// DeleteService forgets a service.
func (c *Compiler) DeleteService(k model.ServiceKey) {
	if s := c.services[k]; s != nil {
		c.leaveNetwork(s)
		s.rec = nil
		c.changed.services.add(s)
	}
}

// joinNetwork enters a service into its network's index, and its backends.
func (c *Compiler) joinNetwork(s *service) {
	n := c.network(s.rec.NetworkKey())
	if s.net = n; n.services == nil {
		n.services = &serviceIndex{all: set[*service]{}, bySelect: map[model.ServiceSelector]set[*service]{}, endpoints: map[model.ServiceSelector]set[*endpoint]{}, at: n.id}
		for e := range eachEndpoint(n) {
			n.services.index(e, true)
		}
		c.countExposing(n, 1)
	}
	x := n.services
	x.all.add(s)
	if len(s.rec.Selectors) == 0 {
		return // nobody is selected
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
			c.provide(s, e)
		}
	}
}

// leaveNetwork is the reverse of joinNetwork.
func (c *Compiler) leaveNetwork(s *service) {
	n := s.net
	if n == nil {
		return
	}
	for e := range s.members {
		delete(e.services, s)
	}
	clear(s.members)
	delete(c.changed.backends, s)
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
		c.dirtyNetworks.add(n)
		c.countExposing(n, -1)
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
func (c *Compiler) serve(e *endpoint, in bool) {
	for s := range e.services {
		delete(s.members, e)
		c.changed.backend(s, e)
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
				c.provide(s, e)
			}
		}
	}
}

// relabel brings the services of an endpoint up to date with what else has changed
// of it: labels, health, and whether it drains.
func (c *Compiler) relabel(e *endpoint, v model.Endpoint) {
	if maps.Equal(e.Labels, v.Labels) {
		if e.Unhealthy != v.Unhealthy || e.Draining != v.Draining {
			for s := range e.services {
				c.changed.backend(s, e)
			}
		}
		e.Endpoint = v
		return
	}
	c.serve(e, false)
	e.Endpoint = v
	c.serve(e, true)
}

func (c *Compiler) provide(s *service, e *endpoint) {
	if e.services == nil {
		e.services = set[*service]{}
	}
	e.services.add(s)
	s.members.add(e)
	c.changed.backend(s, e)
}

// compileServices brings services and their names up to date with what has
// changed of them, of their networks and of the endpoints that provide them.
func (c *Compiler) compileServices(before desired.Host) {
	for n := range c.dirtyNetworks {
		if x := n.services; x != nil && (x.at != n.id || x.parted != n.parted() || n.rec != nil && x.encap != n.rec.Encap) {
			x.parted = n.parted()
			if x.at = n.id; n.rec != nil {
				x.encap = n.rec.Encap
			}
			for s := range x.all {
				c.changed.services.add(s)
			}
		}
	}
	for e := range c.dirtyEps {
		for s := range e.services {
			c.changed.backend(s, e)
		}
	}
	for s := range c.changed.services {
		c.claimAddrs(s)
	}
	for s, changed := range c.changed.backends {
		for e := range changed {
			c.putBackend(s, e)
		}
		c.putService(s, before)
	}
	for s := range c.changed.services {
		if _, done := c.changed.backends[s]; !done {
			c.putService(s, before)
		}
		noEffect(c, "serviceLBs", s.key.String(), s.rec, true)
		c.putName(before, desired.DNSKey{Service: s.key}, serviceName(s))
		if s.rec == nil {
			delete(c.services, s.key)
		}
	}
	reset(&c.changed.services)
	c.changed.backends = map[*service]set[*endpoint]{}
}

// putBackend writes what an endpoint that has changed is to a service. What the
// present endpoint of its key is counts, should it be another one.
func (c *Compiler) putBackend(s *service, e *endpoint) {
	if e.gone {
		if n := c.networks[e.Key.Network]; n != nil && n.eps[e.Key.ID] != nil {
			e = n.eps[e.Key.ID]
		}
	}
	if _, provides := e.services[s]; !provides || !e.serves() {
		s.backends = s.backends.Delete(e.Key)
		return
	}
	b := &desired.Backend{Network: e.net.id, IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), Local: e.isPort, Near: c.nearOf(e.isPort)}
	if e.isRemote && e.net.rec.Encap == model.EncapVXLAN {
		b.VTEP = c.vtep(e.Host)
	}
	switch {
	case e.Unhealthy:
		b.State = desired.BackendUnhealthy
	case e.Draining:
		b.State = desired.BackendDraining
	}
	b.State = c.spared(e, b.State)
	if old, ok := s.backends.Get(e.Key); !ok || *old != *b {
		s.backends = s.backends.Set(e.Key, b)
	}
}

// putService writes a service into the picture: where its network is in it, and it
// has an address.
func (c *Compiler) putService(s *service, before desired.Host) {
	object, parted := "service "+s.key.String(), ""
	if s.rec != nil && s.net.parted() {
		parted = textParted
	}
	if s.rec == nil || s.net.id == 0 || !s.rec.VIP.IsValid() && !s.rec.VIP6.IsValid() {
		c.out.Services = c.out.Services.Delete(s.key)
		c.problems.set(object, parted)
		return
	}
	pic := &desired.Service{Key: s.key, Network: s.net.id, Backends: s.backends, Ports: servicePorts(s.rec), Affinity: s.rec.AffinityTime()}
	pic.IPv4, pic.IPv6 = s.rec.Addrs()
	texts := []string{parted, c.leadOutside(s, pic), ""}
	if n := s.backends.Len(); n > desired.MaxBackends {
		pic.Backends = firstBackends(s.backends)
		texts[2] = fmt.Sprintf("has %d providers: connections go to the first %d of them by name", n, desired.MaxBackends)
	}
	c.problems.set(object, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; "))
	if old, ok := before.Services.Get(s.key); ok && old.Equal(pic) {
		pic = old
	}
	c.out.Services = c.out.Services.Set(s.key, pic)
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
