package analysis

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reachability"
	"github.com/contiv/netplugin/v2/internal/model"
)

// RouteLocal is the route of an endpoint to itself: its own stack, which asks no policy.
const RouteLocal reachability.Route = "local"

// domainAddress is an address as the endpoints of a domain use it.
type domainAddress struct {
	domain desired.Domain
	addr   netip.Addr
}

// addressUse is what answers at an address beside endpoints.
type addressUse struct {
	node      bool // the address is a host's own
	services  []serviceParts
	published []publishedAt
}

// setUse enters what answers at the single addresses of a side.
func (r *clusterRows) setUse(s side, reports map[model.HostName]HostReport) side {
	s.use = map[netip.Addr]addressUse{}
	for _, p := range s.outside {
		if p.IsSingleIP() {
			s.use[p.Addr()] = r.useOf(p.Addr(), reports)
		}
	}
	return s
}

func (r *clusterRows) useOf(at netip.Addr, reports map[model.HostName]HostReport) (use addressUse) {
	own := map[model.HostName]bool{}
	for name := range r.hosts {
		own[name] = slices.Contains(r.addressesOfHost(name), netip.PrefixFrom(at, at.BitLen()))
		use.node = use.node || own[name]
	}
	for key, s := range r.state.Services.All() {
		answers := s.IPv4 == at || s.IPv6 == at || slices.ContainsFunc(s.Frontends, func(f desired.Frontend) bool {
			return f.Addr == at || use.node && f.Addr == desired.AnyNode(at)
		})
		if !answers {
			continue
		}
		whole := wholeService(key)
		i := slices.IndexFunc(use.services, func(s serviceParts) bool { return s.key == whole })
		if i < 0 {
			i, use.services = len(use.services), append(use.services, serviceParts{key: whole, at: at, node: use.node})
		}
		use.services[i].parts = append(use.services[i].parts, key)
	}
	for _, all := range r.publishedPorts(reports) {
		for _, p := range all {
			if a := p.At.Addr(); a == at || own[p.host] && p.at(at.Is6()) && (!a.IsValid() || a.IsUnspecified()) {
				use.published = append(use.published, p)
			}
		}
	}
	slices.SortFunc(use.services, func(a, b serviceParts) int { return strings.Compare(a.key.String(), b.key.String()) })
	slices.SortFunc(use.published, func(a, b publishedAt) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), cmp.Compare(a.At.Port(), b.At.Port()))
	})
	return use
}

// publishedPorts are the ports that hosts lead to their own endpoints; about others' endpoints a
// host is not believed.
func (r *clusterRows) publishedPorts(reports map[model.HostName]HostReport) map[model.EndpointKey][]publishedAt {
	out := map[model.EndpointKey][]publishedAt{}
	for host, report := range reports {
		for _, p := range report.Published {
			if e := r.endpoints[p.Endpoint]; e != nil && e.Host == host {
				out[p.Endpoint] = append(out[p.Endpoint], publishedAt{p, host})
			}
		}
	}
	return out
}

// at reports whether a port is published for other hosts, by addresses of a family.
func (p PublishedPort) at(v6 bool) bool {
	a := p.At.Addr()
	return !a.IsValid() || a.Is6() == v6 && !a.IsLoopback()
}

// row begins a row of connections by the port.
func (p publishedAt) row(v6 bool, answer reachability.Answer) Row {
	return Row{IPv4: !v6, IPv6: v6, Published: string(p.host) + " " + publishedText(p.At), Answer: answer}
}

// setTaken enters which addresses a side's endpoints have, by domain.
func (r *clusterRows) setTaken(s side) side {
	if s.addressed {
		s.taken = map[domainAddress]bool{}
		for _, p := range s.endpoints {
			if n := r.cluster.NetworkOf(p); n != nil {
				s.taken[domainAddress{n.Domain(), p.Addr(s.isIPv6())}] = true
			}
		}
	}
	return s
}

// ofTenant keeps the endpoints of a tenant ("" = all) if a side is addresses.
func (s side) ofTenant(tenant model.TenantName) side {
	if s.addressed && tenant != "" {
		s.endpoints = slices.DeleteFunc(s.endpoints, func(p *desired.Port) bool { return p.Endpoint.Network.Tenant != tenant })
	}
	return s
}

// isIPv6 reports whether the addresses of a side that is addresses are of IPv6.
func (s side) isIPv6() bool { return s.outside[0].Addr().Is6() }

// has reports whether a side asks about a family.
func (s side) has(v6 bool) bool { return !s.addressed || s.isIPv6() == v6 }

// means reports whether a side means an endpoint of its own, for the endpoint at the other end. An
// address means the endpoint that has it in the other end's domain, or else in its tenant.
func (t *table) means(s side, own, other *desired.Port) bool {
	if !s.addressed {
		return true
	}
	n, o := t.rows.cluster.NetworkOf(other), t.rows.cluster.NetworkOf(own)
	switch {
	case n == nil || o == nil:
		return false
	case n.Domain() == o.Domain():
		return true
	}
	return n.Key.Tenant == o.Key.Tenant && !s.taken[domainAddress{n.Domain(), own.Addr(s.isIPv6())}]
}

// toAddresses adds answers for connections of an endpoint to addresses of a side. met: endpoints
// have some of them.
func (t *table) toAddresses(a *desired.Port, p netip.Prefix, from, to side, met bool) {
	all := t.rows.cluster.ToOutside(a, p)
	left, use := t.ports, to.use[p.Addr()]
	if !p.IsSingleIP() {
		use = addressUse{}
	}
	for _, s := range use.services {
		if all[0].Route != reachability.RouteHost && !t.inDomain(a, s) {
			continue
		}
		asked := t.service(a, s, from)
		if left = left.Without(asked); !asked.IsEmpty() && !use.node {
			return
		}
	}
	for _, published := range use.published {
		if all[0].Route == reachability.RouteHost {
			left = left.Without(t.published(a, p.Addr(), published, all[0].Answer))
		}
	}
	for _, o := range all {
		if gap := t.routedGap(a, p); gap != "" && o.Route == reachability.RouteHost {
			o.Answer = reachability.Answer{Route: reachability.RouteNone, Gap: gap}
		}
		if o.Answer = o.Of(left); o.Route == reachability.RouteNone || len(o.Parts) > 0 {
			t.outside(model.Out, a, o, to, met)
		}
	}
}

// inDomain reports whether an endpoint is of a service's domain.
func (t *table) inDomain(a *desired.Port, s serviceParts) bool {
	n := t.rows.cluster.NetworkOf(a)
	for _, key := range s.parts {
		if of, is := t.rows.state.Services.Get(key); is && n != nil && t.rows.cluster.InDomain(of, n) {
			return true
		}
	}
	return false
}

// routedGap says why an endpoint does not reach addresses of a routed network that is not of its
// domain; "" = they are of none.
func (t *table) routedGap(a *desired.Port, p netip.Prefix) reachability.Gap {
	n := t.rows.cluster.NetworkOf(a)
	for _, o := range t.rows.state.Networks.All() {
		if n == nil || n.Routed || !o.Routed {
			continue
		}
		switch {
		case !covers(o, p):
		case n.Key.Tenant != o.Key.Tenant:
			return reachability.GapTenant
		default:
			return reachability.GapRouter
		}
	}
	return ""
}

// covers reports whether all addresses of a range are of a network's subnets.
func covers(n *desired.Network, p netip.Prefix) bool {
	for _, s := range []netip.Prefix{n.Subnet, n.Subnet6} {
		if s.IsValid() && s.Bits() <= p.Bits() && s.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// published adds the answer for an endpoint that asks for a port that a host publishes at an
// address, and returns the port. direct is the answer for the address itself. The container sees
// an address of the endpoint's host, and its own host's private one.
func (t *table) published(a *desired.Port, at netip.Addr, p publishedAt, direct reachability.Answer) reachability.Ports {
	v6 := at.Is6()
	asked := reachability.OnePort(p.Protocol, p.At.Port())
	b, is := t.rows.cluster.Port(p.Endpoint)
	client := direct.Of(t.ports.And(asked))
	if !is || !b.Addr(v6).IsValid() || len(client.Parts) == 0 {
		return asked
	}
	host := t.rows.hostOf(a.Endpoint)
	source := host.VTEP
	if v6 {
		source = host.IPv6
	}
	if way := t.rows.state.HostNAT; way != nil && host.Name == p.host {
		if source = way.Addr; v6 {
			source = way.Addr6
		}
	}
	row := p.row(v6, reachability.Answer{Route: reachability.RouteNone, Gap: reachability.GapFamily})
	if asHost, is := t.rows.cluster.AsHost(b, v6); is {
		row.Answer = asHost
	} else if source.IsValid() {
		row.Answer = t.rows.cluster.FromOutside(netip.PrefixFrom(source, source.BitLen()), b)[0].Answer
	}
	row.Answer = row.Of(reachability.OnePort(p.Protocol, p.Port))
	for i := range row.Parts {
		row.Parts[i].Out = client.Parts[0].Out
		row.Parts[i].Allowed = row.Parts[i].Allowed && client.Parts[0].Allowed
	}
	t.put(a.Endpoint.String(), t.backend(p.Endpoint, b.Addr(v6)), row)
	return asked
}

// fromClients adds answers for clients at addresses of a side. By hosts they get to the ports alone
// that hosts publish, unless the network is routed. met: endpoints have some of the addresses.
func (t *table) fromClients(p netip.Prefix, b *desired.Port, from side, met bool) {
	n := t.rows.cluster.NetworkOf(b)
	for _, o := range t.rows.cluster.FromOutside(p, b) {
		if o.Route != reachability.RouteHost || n.Routed || t.asserts {
			t.outside(model.In, b, o, from, met)
			continue
		}
		v6, left := p.Addr().Is6(), t.ports
		for _, at := range t.publishedOf[b.Endpoint] {
			only := reachability.OnePort(at.Protocol, at.Port)
			if !at.at(v6) || left.And(only).IsEmpty() {
				continue
			}
			left = left.Without(only)
			row := at.row(v6, o.Of(only))
			if asHost, is := t.rows.cluster.AsHost(b, v6); is {
				row.Answer = asHost.Of(only)
			}
			for _, x := range o.Prefixes {
				t.put(cmp.Or(from.name, x.String()), b.Endpoint.String(), row)
			}
		}
		if !left.IsEmpty() {
			o.Answer = reachability.Answer{Route: reachability.RouteNone, Gap: GapService}
			t.outside(model.In, b, o, from, false)
		}
	}
}
