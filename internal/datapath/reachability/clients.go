package reachability

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The gaps of clients outside.
const (
	GapSource  Gap = "source-refused" // the service takes clients of other addresses only
	GapBackend Gap = "no-endpoint"    // hosts lead no clients outside to this backend, which is no endpoint
)

// ExposedPort answers for one port at which clients outside ask a service.
type ExposedPort struct {
	desired.Frontend
	Backends []ExposedBackend // that new connections may go to, in the order of their addresses; none = connections are refused
}

// ExposedBackend answers for the connections of clients outside that go to one backend.
type ExposedBackend struct {
	Key     model.EndpointKey
	Addr    netip.Addr
	Port    uint16
	Clients []Outside // each has parts of Port alone
}

// OutsideToService answers for connections from the addresses of a prefix to the addresses at
// which clients outside ask a service: to none unless it is exposed. As far as the traffic policy
// asks for backends of the host that the client comes to, that may be any host.
func (c *Cluster) OutsideToService(there netip.Prefix, key model.ServiceKey) (out []ExposedPort) {
	s, ok := c.host.Services.Get(key)
	if !ok || !s.Exposed {
		return nil
	}
	n, ok := c.host.Networks.Get(s.Network)
	if !ok {
		return nil
	}
	v6 := there.Addr().Is6()
	for _, f := range frontends(s) {
		if f.Addr.Is6() != v6 {
			continue
		}
		port := ExposedPort{Frontend: f}
		for k, b := range c.pool(s, v6, f.ExternalPolicy, "") {
			to := ExposedBackend{Key: k, Addr: b.Addr(v6), Port: b.PortFor(v6, f.Backend)}
			to.Clients = c.clients(there, n, f, s, b, to)
			port.Backends = append(port.Backends, to)
		}
		slices.SortFunc(port.Backends, func(a, b ExposedBackend) int { return a.Addr.Compare(b.Addr) })
		out = append(out, port)
	}
	return out
}

// clients answers for the clients outside of one backend.
func (c *Cluster) clients(there netip.Prefix, n *desired.Network, f desired.Frontend, s *desired.Service, b *desired.Backend, at ExposedBackend) []Outside {
	port := c.byAddress[address{n.Domain(), at.Addr}]
	bounds := slices.Concat(desired.Blackhole, linkLocal, c.subnets(n), natSubnets(c.host.HostNAT), f.Sources)
	if port != nil {
		bounds = append(bounds, c.prefixes(port, model.In)...)
	}
	only := OnePort(f.Protocol, at.Port)
	return outsides(there, bounds, c.byAddress.takenIn(n), func(client netip.Addr) Answer {
		switch {
		case !c.isClient(n, client):
			return Answer{Route: RouteNone, Gap: GapAddress}
		case !f.Takes(client):
			return Answer{Route: RouteHost, Gap: GapSource}
		case b.External() && !c.leadsTo(n, s, f.Protocol, at):
			return Answer{Route: RouteNone, Gap: GapBackend}
		case b.External(): // in the name of the host
			return Answer{Route: RouteHost, Parts: []Part{{Ports: only, Allowed: true}}}
		case port == nil:
			return Answer{Route: RouteNone, Gap: GapAddress}
		}
		own := c.NetworkOf(port)
		if own == nil || own.Encap == model.EncapVXLAN && port.Identity == model.IdentityUnknown {
			return Answer{Route: RouteNone, Gap: GapIdentity}
		}
		here := c.judge(port, model.In, desired.Peer{Identity: model.IdentityExternal, Addr: client, Network: port.Network})
		return Answer{Route: RouteHost, Parts: alone(here, model.In)}.Of(only)
	})
}

var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}

// isClient reports whether an address can be an external client's in a network's domain.
func (c *Cluster) isClient(n *desired.Network, a netip.Addr) bool {
	way := c.host.HostNAT
	return !n.Contains(a) && !c.isOtherNetwork(n, a) && c.byAddress[address{n.Domain(), a}] == nil &&
		!desired.InBlackhole(a) && !linkLocal[0].Contains(a) && (!n.Routed || !c.routed.contain(a)) &&
		(way == nil || !way.Subnet.Contains(a) && !way.Subnet6.Contains(a))
}

// leadsTo reports whether hosts lead clients outside to a backend of a service that is no endpoint:
// their stacks where all others are on routed networks, or else the relay address ("Clients
// outside" in docs/design/services.md).
func (c *Cluster) leadsTo(n *desired.Network, s *desired.Service, proto model.Protocol, at ExposedBackend) bool {
	for _, b := range s.Backends.All() {
		if own, ok := c.host.Networks.Get(b.Network); !b.External() && (!ok || !own.Routed) {
			return c.host.HostNAT.Relays(n, netip.AddrPortFrom(at.Addr, at.Port), proto) && c.byAddress[address{n.Domain(), at.Addr}] == nil &&
				!c.isOtherNetwork(n, at.Addr) && !c.routed.contain(at.Addr)
		}
	}
	return true
}

// AsHost answers for the clients outside that come to an endpoint by a port of its host, if they
// have the host's NAT address there: on VLAN networks with a router of their own.
func (c *Cluster) AsHost(to *desired.Port, v6 bool) (Answer, bool) {
	n, way := c.NetworkOf(to), c.host.HostNAT
	if n == nil || n.Encap != model.EncapVLAN || hasRouter(n, v6) || way == nil {
		return Answer{}, false
	}
	client := way.Addr
	if v6 {
		client = way.Addr6
	}
	here := c.judge(to, model.In, desired.Peer{Identity: model.IdentityExternal, Addr: client, Network: to.Network})
	return Answer{Route: RouteHost, Parts: alone(here, model.In)}, true
}

// ToServiceByHost answers for connections of an endpoint to a service of another domain, which
// clients there reach by their host, in its name.
func (c *Cluster) ToServiceByHost(from *desired.Port, key model.ServiceKey, v6 bool) (out []ServicePort) {
	here := c.hostOf(from.Endpoint)
	host := here.VTEP
	if v6 {
		host = here.IPv6
	}
	s, ok := c.host.Services.Get(key)
	if n := c.NetworkOf(from); n == nil || !ok || !s.Exposed || !host.IsValid() || c.InDomain(s, n) {
		return nil
	}
	for _, p := range c.OutsideToService(netip.PrefixFrom(host, host.BitLen()), key) {
		at := p.Addr
		if at.IsUnspecified() {
			at = host
		}
		asked := ServicePort{p.Addr, p.Protocol, p.Port, nil}
		local := c.pool(s, v6, p.ExternalPolicy, here.Name)
		client := c.outsideAt(from, model.Out, at).Of(OnePort(p.Protocol, p.Port))
		for _, b := range p.Backends {
			if _, may := local[b.Key]; may {
				asked.Backends = append(asked.Backends, byHost(client, b))
			}
		}
		out = append(out, asked)
	}
	return out
}

// byHost joins what the client's end says of the service's port with what a backend's end says
// of its own port.
func byHost(client Answer, b ExposedBackend) Backend {
	to := Backend{Key: b.Key, Addr: b.Addr, Port: b.Port, Route: client.Route, Gap: client.Gap}
	if to.Route == RouteHost {
		to.Route, to.Gap = b.Clients[0].Route, b.Clients[0].Gap
	}
	if to.Route != RouteHost || to.Gap != "" || len(client.Parts) == 0 || len(b.Clients[0].Parts) == 0 {
		return to
	}
	to.Part = b.Clients[0].Parts[0]
	to.Out = client.Parts[0].Out
	to.Allowed = to.Allowed && client.Parts[0].Allowed
	return to
}

// InDomain reports whether a service is of a network's domain.
func (c *Cluster) InDomain(s *desired.Service, n *desired.Network) bool {
	at, ok := c.host.Networks.Get(s.Network)
	return ok && at.Domain() == n.Domain()
}
