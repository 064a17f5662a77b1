package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Clients outside of all networks (docs/design/services.md, "From outside"): clients that
// another host forwards come by a tunnel from that host's router. The label of their
// connection has the tunnel endpoint of the client's last packet, so the answers find back,
// also after a restart of the driver.

// markExternalRemote in ct_mark says that a connection's client is outside, and came through
// the host whose tunnel endpoint is in ct_label.
const markExternalRemote = 2

// toIngressHost in regPort means the router of the host that the connection's client came
// through.
const toIngressHost = 0xfffe0000

// flagReplyOnly in regFlags is set for a packet to the router that egress does not take: only
// a reply to a client outside goes on.
const flagReplyOnly = 8

// clientsByTunnel reports whether the flows for clients of other hosts are there.
func (c Config) clientsByTunnel() bool { return c.Tunnel != 0 }

var (
	isExternalRemoteConn = of.Eq(of.CtMark, markExternalRemote)
	// isReply matches what goes back in a connection that tracking knows.
	isReply         = of.State(of.StateRpl|of.StateTrk, 0)
	byIPv4          = of.EqAddr(of.TunIPv6Src, netip.IPv6Unspecified()) // came by a tunnel between IPv4 addresses
	isFromRouterMAC = of.EqMAC(of.EthSrc, desired.RouterMAC)
	isToRouterMAC   = of.EqMAC(of.EthDst, desired.RouterMAC)
	linkLocal       = netip.MustParsePrefix("169.254.0.0/16") // beside desired.Blackhole
)

// routerToRouter makes a frame one of the router's, to the router of another host.
func routerToRouter(then ...of.Action) []of.Action {
	mac := of.MAC(desired.RouterMAC)
	return append([]of.Action{of.SetField{Field: of.EthSrc, Value: mac}, of.SetField{Field: of.EthDst, Value: mac}}, then...)
}

// externalClientBase adds what clients outside need whatever networks and hosts there are.
func (l baseFlows) externalClientBase() {
	if !l.c.clientsByTunnel() && !l.c.exposesServices() {
		return
	}
	l.drop(ExternalSource, 0, nil, driver.DropSpoof)
	nobody := append([]netip.Prefix{linkLocal}, desired.Blackhole...)
	for _, x := range families(l.c) {
		nobody = append(nobody, x.subnet)
	}
	for _, p := range nobody {
		eth, src, _ := ethOf(p.Addr().Is6())
		l.drop(ExternalSource, 200, match(eth, of.InPrefix(src, p)), driver.DropSpoof)
	}
	l.tunnelBase()
	l.exposedBase()
	l.repliesOnly()
}

// tunnelBase adds what clients need that come by other hosts.
func (l baseFlows) tunnelBase() {
	if !l.c.clientsByTunnel() {
		return
	}
	for _, s := range []Stage{CrossNetwork, TunnelSource} {
		l.add(s, 300, match(origin(fromTunnel), isFromRouterMAC), goTo(RemoteRouter))
	}
	l.drop(RemoteRouter, 0, nil, driver.DropUnknownSource)
	l.drop(ExternalClient, 0, nil, driver.DropUnknownSource)
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(ExternalClient, 200, nd(typ), driver.DropUnknownSource)
	}
	l.drop(Destination, 115, match(origin(fromExternalRemote)), driver.DropUnknownDest) // else the MAC would do
	l.drop(ToIngressHost, 0, nil, driver.DropUnknownDest)
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(ExternalClient, 100, match(eth, unicast), of.Set(regOrigin, fromExternalRemote), goTo(ExternalSource))
		l.add(ExternalSource, 10, match(eth, origin(fromExternalRemote)), of.Set(regSrc, model.IdentityExternal), goTo(Destination))

		// The client may come by another host than before, so each packet says by which.
		here := match(eth, origin(fromExternalRemote))
		began := match(append(here, of.State(of.StateNew|of.StateTrk, 0))...)
		l.add(ConntrackCommit, 17, match(append(began, byIPv4)...), rememberTunnel(of.TunSrc))
		l.add(ConntrackCommit, 16, began, rememberTunnel(of.TunIPv6Src))
		l.add(ConntrackCommit, 15, match(append(here, of.State(of.StateTrk, 0))...), goTo(Relabel))
		l.add(ConntrackCommit, 16, match(append(here, isServiceConn, of.State(of.StateTrk, of.StateNew))...), goTo(Output)) // of a backend that is no endpoint
		l.add(Relabel, 10, match(eth, byIPv4), rememberTunnel(of.TunSrc))
		l.add(Relabel, 0, match(eth), rememberTunnel(of.TunIPv6Src))
	}
	back := match(origin(fromPort), isExternalRemoteConn, isReply)
	if l.c.Host != 0 {
		l.add(Output, 161, match(append(back, of.Eq(regPort, l.c.Host))...), of.Set(regPort, uint32(toIngressHost)), goTo(Output))
	}
}

// rememberTunnel remembers of a connection by which tunnel endpoint its client came.
func rememberTunnel(vtep of.Field) of.CT {
	return of.CT{Commit: true, ZoneField: regDomain, Mark: markExternalRemote, Label: vtep, Recirc: true, Table: uint8(Output)}
}

// repliesOnly adds the flows for containers' packets to the router that go nowhere
// by routing and by egress: tracking has to tell whether they are answers.
func (l baseFlows) repliesOnly() {
	port := uint32(toIngressHost)
	if l.c.Host != 0 {
		port = l.c.Host
	}
	acts := []of.Action{of.Set(regFlags, flagReplyOnly), of.Set(regDst, model.IdentityExternal), of.Set(regPort, port), goTo(Conntrack)}
	router := match(origin(fromPort), isToRouterMAC)
	if l.c.Host == 0 { // on other networks the MAC is unused
		router = append(router, joined)
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(Destination, 199, match(append(router, eth)...), acts...)
		l.add(Router, 2, match(eth), acts...)
	}
	for _, x := range families(l.c) {
		if tunnel := l.c.Private.TunnelPort; tunnel != 0 { // of clients that send from it
			l.add(HostEgress, 152, match(x.eth, isProto(17), of.Eq(of.UDPDst, tunnel)), acts...)
		}
	}
	only := of.Eq(regFlags, flagReplyOnly)
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(Conntrack, 210, nd(typ, only), driver.DropUnknownDest)
	}
	l.dropReply(l.c, Conntrack, 60, match(only))
	l.dropReply(l.c, ConntrackState, 110, match(only, of.State(of.StateInv|of.StateTrk, 0)))
	l.dropReply(l.c, ConntrackState, 110, match(only, of.State(of.StateTrk, of.StateRpl)))
	l.dropReply(l.c, ConntrackState, 110, match(only, of.Masked(of.CtMark, of.Value{}, of.Uint(markExternalRemote|markExternalLocal|markHostStack))))
}

// dropReply drops what is no answer, also what tracking calls invalid; a network's router
// refuses it.
func (l *list) dropReply(c Config, s Stage, priority uint16, m of.Match) {
	l.drop(s, priority, m, driver.DropUnknownDest)
	l.refuse(c, s, priority+1, match(append(m, joined)...), driver.DropUnknownDest)
}

// externalClientNetwork says that no endpoint of a network is outside of its domain, and how
// answers leave it.
func (l networkFlows) externalClientNetwork() {
	if !l.c.clientsByTunnel() && !l.c.exposesServices() {
		return
	}
	for _, p := range []netip.Prefix{l.n.Subnet, l.n.Subnet6} {
		if p.IsValid() {
			eth, src, _ := ethOf(p.Addr().Is6())
			l.drop(ExternalSource, 100, match(domain(l.n), eth, of.InPrefix(src, p.Masked())), driver.DropSpoof)
		}
	}
	if l.n.Encap == model.EncapVXLAN && l.c.clientsByTunnel() {
		l.add(Output, 160, match(network(l.n.ID), of.Eq(regPort, uint32(toIngressHost))), routerToRouter(of.Set(of.TunID, l.n.Tag), goTo(ToIngressHost))...)
	}
}

// notExternal adds that an endpoint's addresses beyond its network's subnets are no
// client's outside.
func (l networkFlows) notExternal(own ...netip.Addr) {
	for _, a := range own {
		if (l.c.clientsByTunnel() || l.c.exposesServices()) && a.IsValid() && !l.n.Contains(a) {
			l.drop(ExternalSource, 100, fromAddr(a, domain(l.n)), driver.DropSpoof)
		}
	}
}

// OtherHost returns the flows for another host's tunnel endpoint: its router is
// believed, and answered, and so are its probes.
func OtherHost(c Config, vtep netip.Addr) []of.Flow {
	l := &list{cookie: cookie(KindBase, 0)}
	if !c.clientsByTunnel() {
		return nil
	}
	l.add(RemoteRouter, 100, match(tunnelFrom(vtep)), goTo(ExternalClient))
	l.flows = append(l.flows, probeFlows(c, vtep)...)
	l.add(ToIngressHost, 100, match(of.EqValue(of.CtLabel, of.Addr(vtep))), tunnelTo(vtep), of.Output{Port: c.Tunnel})
	return l.flows
}
