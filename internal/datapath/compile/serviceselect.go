package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceIndex is what a network with services has besides, so that neither an
// endpoint's change looks at all services nor a service's at all endpoints.
type serviceIndex struct {
	all       set[*service]
	bySelect  map[model.ServiceSelector]set[*service]  // by one of their selectors
	endpoints map[model.ServiceSelector]set[*endpoint] // nil while no service has a selector
	// The network's number and encapsulation, and whether it was parted, when its services
	// were compiled.
	at       model.NetworkID
	encap    model.Encap
	split    bool
	exposing int // services that want to be exposed
}

// joinNetwork enters a service into its network's index, and its backends.
func (sv *Services) joinNetwork(s *service) {
	n := sv.inv.network(s.rec.Network)
	if s.net = n; n.services == nil {
		n.services = &serviceIndex{all: set[*service]{}, bySelect: map[model.ServiceSelector]set[*service]{}, at: n.id}
	}
	x := n.services
	x.all.add(s)
	if s.wantsExposure() {
		if x.exposing++; x.exposing == 1 {
			sv.routing.countExposing(n, 1)
		}
	}
	if len(s.rec.Selectors) == 0 {
		return // no endpoint is selected
	}
	if x.endpoints == nil {
		x.endpoints = map[model.ServiceSelector]set[*endpoint]{}
		for e := range eachEndpoint(n) {
			x.index(e, true)
		}
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
	s.found = &by
	addTo(x.bySelect, by, s)
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
	s.selected = desired.Map[model.EndpointKey, *desired.Backend]{}
	x := n.services
	if s.found != nil {
		if removeFrom(x.bySelect, *s.found, s); len(x.bySelect) == 0 {
			x.endpoints = nil
		}
	}
	s.net, s.found = nil, nil
	if s.wantsExposure() {
		if x.exposing--; x.exposing == 0 {
			sv.routing.countExposing(n, -1)
		}
	}
	if delete(x.all, s); len(x.all) == 0 {
		n.services = nil
		sv.backends.forgetDomain(n)
		sv.dirtyNetworks.add(n)
	}
}

// index enters an endpoint's labels, or takes them out.
func (x *serviceIndex) index(e *endpoint, in bool) {
	for k, v := range e.Labels {
		sel := model.ServiceSelector{Key: k, Value: v}
		if in {
			addTo(x.endpoints, sel, e)
		} else {
			removeFrom(x.endpoints, sel, e)
		}
	}
}

// selectServices finds the services that an endpoint provides, or (not in) takes it out of
// the services that it provided.
func (sv *Services) selectServices(e *endpoint, in bool) {
	for s := range e.services {
		delete(s.members, e)
		sv.touchBackend(s, e)
	}
	clear(e.services)
	x := e.net.services
	if x == nil || x.endpoints == nil {
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
