package reachability

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ServicePort answers for one port at which a service is asked.
type ServicePort struct {
	Addr     netip.Addr
	Protocol model.Protocol
	Port     uint16
	Backends []Backend // that new connections may go to, in the order of their addresses; none = connections are refused
}

// Backend answers for the connections of a service's port that go to one backend.
type Backend struct {
	Key   model.EndpointKey
	Addr  netip.Addr
	Port  uint16
	Route Route
	Gap   Gap
	Part  // of Port alone; without a route nothing is allowed
}

// ToService answers for connections of an endpoint to the addresses that a service has of a
// family in the endpoint's domain. Backends are chosen among as on a host that has all of them.
func (c *Cluster) ToService(from *desired.Port, key model.ServiceKey, v6 bool) (out []ServicePort) {
	n := c.network(from)
	s, ok := c.host.Services.Get(key)
	if n == nil || !ok {
		return nil
	}
	if at, has := c.host.Networks.Get(s.Network); !has || at.Domain() != n.Domain() {
		return nil
	}
	ask := func(a netip.Addr, f desired.Frontend) {
		if a.Is6() == v6 && f.Port != 0 && f.Takes(from.Addr(v6)) {
			out = append(out, ServicePort{a, f.Protocol, f.Port, c.backends(from, s, f, v6)})
		}
	}
	for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
		for _, p := range s.Ports {
			if a.IsValid() {
				f, _ := s.FrontendAt(a, false, p.Protocol, p.Port)
				ask(a, f)
			}
		}
	}
	for _, f := range s.Frontends {
		ask(f.Addr, f)
	}
	return out
}

func (c *Cluster) backends(from *desired.Port, s *desired.Service, f desired.Frontend, v6 bool) (out []Backend) {
	for key, b := range s.Pool(v6, f.InternalPolicy) {
		asked := Backend{Key: key, Addr: b.Addr(v6), Port: b.PortFor(v6, f.Backend)}
		only := PortsOf(model.PortMatch{Protocol: f.Protocol, Lo: asked.Port, Hi: asked.Port})
		answer := c.toBackend(from, b, asked.Addr, v6)
		asked.Route, asked.Gap = answer.Route, answer.Gap
		for _, p := range answer.Parts {
			if ports := p.Ports.And(only); !ports.IsEmpty() {
				asked.Part = p
				asked.Ports = ports
			}
		}
		out = append(out, asked)
	}
	slices.SortFunc(out, func(a, b Backend) int { return a.Addr.Compare(b.Addr) })
	return out
}

func (c *Cluster) toBackend(from *desired.Port, b *desired.Backend, at netip.Addr, v6 bool) Answer {
	if b.External() {
		answers := c.ToOutside(from, netip.PrefixFrom(at, at.BitLen()))
		return answers[0].Answer
	}
	to := c.byAddress[address{c.network(from).Domain(), at}]
	switch to {
	case nil:
		return Answer{Route: RouteNone, Gap: GapAddress}
	case from: // it comes back to itself, and no policy is asked
		return Answer{Route: RouteNetwork, Parts: []Part{{Ports: AllPorts(), Allowed: true}}}
	}
	return c.Between(from, to, v6)
}

// BackendsOf returns the endpoints that are a service's backends, in the order of their keys.
func (c *Cluster) BackendsOf(key model.ServiceKey) (out []*desired.Port) {
	s, ok := c.host.Services.Get(key)
	if !ok {
		return nil
	}
	for k := range s.Backends.All() {
		if p := c.byKey[k]; p != nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *desired.Port) int { return cmp.Compare(a.Endpoint.String(), b.Endpoint.String()) })
	return out
}
