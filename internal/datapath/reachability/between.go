package reachability

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Route is how packets get from one side to the other.
type Route string

// The routes.
const (
	RouteNone     Route = "none"
	RouteNetwork  Route = "network"          // within one network
	RouteRouter   Route = "router"           // by the tenant's virtual router, to another of its networks
	RouteShared   Route = "shared-network"   // by a virtual router, to a network that one tenant shares with another
	RoutePhysical Route = "physical-network" // by the VLAN, or its gateway, of which Contiv knows nothing more
	RouteHost     Route = "host"             // by the stack of the endpoint's host
)

// Gap says why there is no route.
type Gap string

// The gaps.
const (
	GapSelf     Gap = "same-endpoint"    // no packet leaves it
	GapFamily   Gap = "no-address"       // a side has no address of the family
	GapNetwork  Gap = "no-network"       // a side's network is not there
	GapIdentity Gap = "unknown-identity" // a side's identity is not known yet, and its packets are dropped
	GapTenant   Gap = "other-tenant"     // the networks are of different tenants, and none shares its own
	GapRouter   Gap = "not-routed"       // the tenant's networks are not joined: forwarding mode bridge
	GapAddress  Gap = "address-taken"    // the address leads to another endpoint, or out of its network's subnet
)

// Answer says which connections one side can open to the other.
type Answer struct {
	Route Route
	Gap   Gap // with RouteNone
	// Parts are disjoint and together all ports, in ascending order; without a route there are
	// none.
	Parts []Part
}

// Part is a set of ports about which the same rules decide.
type Part struct {
	Ports   Ports
	Allowed bool
	Out, In *Ruling // of the source's policy, and of the destination's; nil = that side is no endpoint
}

// Of returns the answer for some ports alone.
func (a Answer) Of(ports Ports) Answer {
	all := a.Parts
	a.Parts = nil
	for _, p := range all {
		if p.Ports = p.Ports.And(ports); !p.Ports.IsEmpty() {
			a.Parts = append(a.Parts, p)
		}
	}
	return a
}

// Key is equal for answers that say the same, by the same rules.
func (a Answer) Key() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", a.Route, a.Gap)
	for _, p := range a.Parts {
		fmt.Fprintf(&b, " %v %v", p.Ports.spans, p.Allowed)
		for _, r := range []*Ruling{p.Out, p.In} {
			if r != nil {
				fmt.Fprintf(&b, " %v %p %d %q %v", r.Pass, r.Rule, r.Tier, r.DefaultOf, r.Missing)
			}
		}
	}
	return b.String()
}

// Between answers for two endpoints, by IPv4 or by IPv6.
func (c *Cluster) Between(from, to *desired.Port, v6 bool) Answer {
	src, dst := from.Addr(v6), to.Addr(v6)
	route, gap := c.routeBetween(from, to, src, dst)
	if route == RouteNone {
		return Answer{Route: route, Gap: gap}
	}
	asSource := desired.Peer{Identity: from.Identity, Addr: src, Network: from.Network}
	asTarget := desired.Peer{Identity: to.Identity, Addr: dst, Network: to.Network}
	return Answer{Route: route, Parts: joined(c.judge(from, model.Out, asTarget), c.judge(to, model.In, asSource))}
}

func (c *Cluster) routeBetween(from, to *desired.Port, src, dst netip.Addr) (Route, Gap) {
	n, other := c.NetworkOf(from), c.NetworkOf(to)
	switch {
	case from == to:
		return RouteNone, GapSelf
	case !src.IsValid() || !dst.IsValid():
		return RouteNone, GapFamily
	case n == nil || other == nil:
		return RouteNone, GapNetwork
	case n.Domain() != other.Domain() && n.Key.Tenant == other.Key.Tenant:
		return RouteNone, GapRouter
	case n.Domain() != other.Domain():
		return RouteNone, GapTenant
	case c.byAddress[address{n.Domain(), dst}] != to || !other.Contains(dst):
		return RouteNone, GapAddress
	case (n != other || n.Encap == model.EncapVXLAN) && (from.Identity == model.IdentityUnknown || to.Identity == model.IdentityUnknown):
		return RouteNone, GapIdentity
	case n == other:
		return RouteNetwork, ""
	case !n.Contains(src) || n.Contains(dst):
		return RouteNone, GapAddress
	case n.Key.Tenant == other.Key.Tenant:
		return RouteRouter, ""
	}
	return RouteShared, ""
}
