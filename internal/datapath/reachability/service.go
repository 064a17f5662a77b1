package reachability

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

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
// family in the endpoint's domain.
func (c *Cluster) ToService(from *desired.Port, key model.ServiceKey, v6 bool) (out []ServicePort) {
	n := c.NetworkOf(from)
	s, ok := c.host.Services.Get(key)
	if n == nil || !ok || !c.InDomain(s, n) {
		return nil
	}
	for _, f := range frontends(s) {
		if f.Addr.Is6() == v6 && f.Takes(from.Addr(v6)) {
			out = append(out, ServicePort{f.Addr, f.Protocol, f.Port, c.backends(from, s, f, v6)})
		}
	}
	return out
}

// frontends are all ports at which a service answers, at addresses of its own first.
func frontends(s *desired.Service) (out []desired.Frontend) {
	for _, a := range []netip.Addr{s.IPv4, s.IPv6} {
		for _, p := range s.Ports {
			if a.IsValid() {
				f, _ := s.FrontendAt(a, false, p.Protocol, p.Port)
				out = append(out, f)
			}
		}
	}
	for _, f := range s.Frontends {
		if f.Port != 0 {
			out = append(out, f)
		}
	}
	return out
}

// pool returns the backends that connections may go to as a traffic policy says, on the host of
// the client ("" = whichever host). Where HostOf does not tell, they are all on that host.
func (c *Cluster) pool(s *desired.Service, v6 bool, among desired.TrafficPolicy, at model.HostName) map[model.EndpointKey]*desired.Backend {
	local := among == desired.TrafficLocal || among == desired.TrafficLocalDrop
	if !local || c.HostOf == nil {
		return maps.Collect(s.Pool(v6, among))
	}
	active := map[model.HostName]bool{}
	for k, b := range s.Backends.All() {
		if b.Addr(v6).IsValid() && b.Serving(v6).State == desired.BackendActive {
			active[c.hostOf(k).Name] = true
		}
	}
	out := map[model.EndpointKey]*desired.Backend{}
	for k, b := range s.Backends.All() {
		host, state := c.hostOf(k).Name, b.Serving(v6).State
		takes := state == desired.BackendActive || state == desired.BackendLeaving && !active[host]
		if takes && b.Addr(v6).IsValid() && (at == "" || at == host || b.External()) {
			out[k] = b
		}
	}
	return out
}

// hostOf is the host that has an endpoint; without a name it has none, or it is not known.
func (c *Cluster) hostOf(k model.EndpointKey) model.Host {
	if c.HostOf == nil {
		return model.Host{}
	}
	return c.HostOf(k)
}

func (c *Cluster) backends(from *desired.Port, s *desired.Service, f desired.Frontend, v6 bool) (out []Backend) {
	pool := c.pool(s, v6, f.InternalPolicy, c.hostOf(from.Endpoint).Name)
	if f.Addr.IsUnspecified() && f.ExternalPolicy == desired.TrafficLocalDrop { // at another node's address that node's own
		maps.Copy(pool, c.pool(s, v6, desired.TrafficLocalDrop, ""))
	}
	for key, b := range pool {
		asked := Backend{Key: key, Addr: b.Addr(v6), Port: b.PortFor(v6, f.Backend)}
		only := OnePort(f.Protocol, asked.Port)
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
	to := c.byAddress[address{c.NetworkOf(from).Domain(), at}]
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

// Parts returns as which services one of the store is in the desired state: several where its
// backends have a port under several numbers.
func (c *Cluster) Parts(key model.ServiceKey) (out []model.ServiceKey) {
	for k := range c.host.Services.All() {
		if whole := desired.WholeKey(k); k == key || whole.Tenant == key.Tenant && strings.HasPrefix(whole.Name, key.Name+":") {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b model.ServiceKey) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
