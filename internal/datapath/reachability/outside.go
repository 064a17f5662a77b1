package reachability

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Outside is an answer that holds for all addresses of some prefixes, as far as they are no
// endpoint's and, unless there is no route to any of them, packets can get there at all.
type Outside struct {
	Prefixes []netip.Prefix // in ascending order
	Answer
}

// ToOutside answers for connections of an endpoint to the addresses of a prefix.
func (c *Cluster) ToOutside(from *desired.Port, to netip.Prefix) []Outside {
	return c.outside(from, model.Out, to)
}

// FromOutside answers for connections from the addresses of a prefix to an endpoint. Where
// they come by the host's stack, it needs a published port, a service or a route as well.
func (c *Cluster) FromOutside(from netip.Prefix, to *desired.Port) []Outside {
	return c.outside(to, model.In, from)
}

func (c *Cluster) outside(p *desired.Port, dir model.Direction, there netip.Prefix) []Outside {
	bounds := slices.Concat(desired.Blackhole, c.subnets(c.NetworkOf(p)), natSubnets(c.host.HostNAT), c.prefixes(p, dir))
	if dir == model.Out {
		bounds = append(bounds, c.control.prefixes()...)
	}
	return outsides(there, bounds, c.byAddress.takenIn(c.NetworkOf(p)), func(a netip.Addr) Answer { return c.outsideAt(p, dir, a) })
}

// takenIn tells which addresses are endpoints' in the domain of a network (nil = none).
func (ps portsByAddress) takenIn(n *desired.Network) func(netip.Addr) bool {
	return func(a netip.Addr) bool { return n != nil && ps[address{n.Domain(), a}] != nil }
}

// outsides puts the addresses of a prefix together that have the same answer. Taken ones do
// not answer for others.
func outsides(there netip.Prefix, bounds []netip.Prefix, taken func(netip.Addr) bool, answer func(netip.Addr) Answer) (out []Outside) {
	for _, part := range splitBeside(there, bounds, taken, answer, merged) {
		i := slices.IndexFunc(out, func(o Outside) bool { return o.Key() == part.answer.Key() })
		if i < 0 {
			i, out = len(out), append(out, Outside{Answer: part.answer})
		}
		out[i].Prefixes = append(out[i].Prefixes, part.prefix)
	}
	if slices.ContainsFunc(out, func(o Outside) bool { return o.Route != RouteNone }) {
		out = slices.DeleteFunc(out, func(o Outside) bool { return o.Route == RouteNone })
	}
	return out
}

// merged is the answer for two parts, if there is one: addresses without a route do not divide prefixes.
func merged(a, b Answer) (Answer, bool) {
	switch {
	case a.Route == RouteNone && b.Route != RouteNone:
		return b, true
	case b.Route == RouteNone && a.Route != RouteNone:
		return a, true
	}
	return a, a.Key() == b.Key()
}

// outsideAt answers for one address.
func (c *Cluster) outsideAt(p *desired.Port, dir model.Direction, there netip.Addr) Answer {
	route, gap := c.routeOutside(p, there)
	if route == RouteNone {
		return Answer{Route: route, Gap: gap}
	}
	here := c.judge(p, dir, desired.Peer{Identity: model.IdentityExternal, Addr: there, Network: p.Network})
	answer := Answer{Route: route, Parts: alone(here, dir)}
	if dir == model.Out && route == RouteHost && !p.OnHost {
		answer.Parts = c.control.deny(answer.Parts, there)
	}
	return answer
}

func (c *Cluster) routeOutside(p *desired.Port, there netip.Addr) (Route, Gap) {
	n := c.NetworkOf(p)
	switch {
	case n == nil:
		return RouteNone, GapNetwork
	case !p.Addr(there.Is6()).IsValid():
		return RouteNone, GapFamily
	case n.Encap == model.EncapVXLAN && p.Identity == model.IdentityUnknown:
		return RouteNone, GapIdentity
	case c.byAddress[address{n.Domain(), there}] != nil, c.isOtherNetwork(n, there), desired.InBlackhole(there), n.Contains(there) && n.Encap == model.EncapVXLAN:
		return RouteNone, GapAddress
	case n.Encap == model.EncapVLAN && (n.Contains(there) || !hasRouter(n, there.Is6())):
		return RoutePhysical, ""
	case isPrivate(c.host.HostNAT, there), n.Routed && c.routed.contain(there):
		return RouteNone, GapAddress
	}
	return RouteHost, ""
}

// natSubnets are the subnets of containers' NAT addresses, and the hosts' addresses there.
func natSubnets(way *desired.HostNAT) []netip.Prefix {
	if way != nil {
		host := []netip.Prefix{way.Subnet, netip.PrefixFrom(way.Addr, way.Addr.BitLen())}
		if way.Subnet6.IsValid() {
			host = append(host, way.Subnet6, netip.PrefixFrom(way.Addr6, way.Addr6.BitLen()))
		}
		return host
	}
	return nil
}

// isPrivate reports whether an address is in these subnets, and no host's own.
func isPrivate(way *desired.HostNAT, a netip.Addr) bool {
	return way != nil && (way.Subnet.Contains(a) || way.Subnet6.Contains(a)) && a != way.Addr && a != way.Addr6
}

// routedNetworks are the networks whose addresses hosts' stacks lead to.
type routedNetworks map[model.NetworkID]*desired.Network

// contain reports whether an address is of one of them.
func (r routedNetworks) contain(a netip.Addr) bool {
	for _, n := range r {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

func hasRouter(n *desired.Network, v6 bool) bool {
	if v6 {
		return n.Router6().IsValid()
	}
	return n.Router().IsValid()
}

// subnets are those of the domain of a network (nil = none), and of routed networks if it is one.
func (c *Cluster) subnets(n *desired.Network) (out []netip.Prefix) {
	if n == nil {
		return nil
	}
	out = subnetsOf(n)
	for _, o := range c.joined[n.Domain()] {
		out = append(out, subnetsOf(o)...)
	}
	if n.Routed {
		for _, o := range c.routed {
			out = append(out, subnetsOf(o)...)
		}
	}
	return out
}

// subnetsOf are the subnets that a network has.
func subnetsOf(n *desired.Network) (out []netip.Prefix) {
	for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
		if s.IsValid() {
			out = append(out, s)
		}
	}
	return out
}

// prefixes are all that the rules of an endpoint's policy name in a direction.
func (c *Cluster) prefixes(p *desired.Port, dir model.Direction) (out []netip.Prefix) {
	if set := c.setOf(p); set != nil {
		out = ruleRanges(set, dir)
	}
	return out
}

// ruleRanges are the ranges that a policy set's rules name in a direction.
func ruleRanges(set *desired.PolicySet, dir model.Direction) (out []netip.Prefix) {
	for _, t := range set.Tiers(dir) {
		for _, r := range t.Rules.All() {
			for _, cidr := range r.CIDRs {
				out = append(append(out, cidr.Prefix), cidr.Except...)
			}
		}
	}
	return out
}
