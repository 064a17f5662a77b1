package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Routed networks (docs/design/native.md): the stacks of all hosts and endpoints there
// speak to each other by their own addresses.

// HostSocketMAC is the source MAC of packets of the host's own sockets by the host's interface,
// where the datapath sees no marks; other packets have the interface's MAC.
var HostSocketMAC = model.MAC{0x02, 0x01, 0, 0, 0, 2}

// Bits of ct_mark: this host's stack has begun or forwarded the connection; and a socket of
// this host has sent its client's last packet.
const (
	markHostStack  = 8
	markHostSocket = 16
)

// Values of regScratch before conntrack: which endpoints believe the source of a packet to a
// routed network.
const (
	localOnly = 1 // endpoints' hosts would not believe its address
	anyHost   = 2
)

// priorityHostSocket in the first table of policy is above all rules and hooks.
const priorityHostSocket = 0xffff

var (
	allHosts            = of.Eq(regScratch, anyHost)
	isHostStackConn     = of.Masked(of.CtMark, of.Uint(markHostStack), of.Uint(markHostStack))
	isHostSocketConn    = of.Masked(of.CtMark, of.Uint(markHostSocket), of.Uint(markHostSocket))
	isFromHostSocket    = of.Masked(regFlags, of.Uint(flagHostSocket), of.Uint(flagHostSocket))
	isNotFromHostSocket = of.Masked(regFlags, of.Value{}, of.Uint(flagHostSocket))
)

// hasRouted reports whether the flows for routed networks are there.
func (c Config) hasRouted() bool { return c.Routed && c.Host != 0 }

// routesNetwork reports whether they are for this network.
func (c Config) routesNetwork(n *desired.Network) bool { return c.hasRouted() && n.Routed }

// sentBySocket matches packets by the host's interface that sockets of the host have sent.
func (c Config) sentBySocket() of.Term {
	if c.Marks {
		return of.Eq(of.PktMark, desired.OwnMark)
	}
	return of.EqMAC(of.EthSrc, HostSocketMAC)
}

// routedBase adds what routed networks need whatever networks and machines there are.
func (l baseFlows) routedBase() {
	if !l.c.hasRouted() {
		return
	}
	own := l.c.sentBySocket()
	l.drop(RoutedNetwork, 0, nil, driver.DropNetwork)
	l.drop(RoutedEndpoint, 0, nil, driver.DropUnknownDest)
	l.drop(RoutedEndpoint, 10, match(of.Eq(regScratch, localOnly)), driver.DropSpoof)
	l.add(ToNode, 0, nil, goTo(Conntrack))
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(ExternalSource, 300, nd(typ, origin(fromHostRouted)), driver.DropSpoof)
	}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} {
		if a.IsValid() { // it means nothing on other hosts
			l.add(ExternalSource, 250, fromAddr(a, origin(fromHostRouted)), of.Set(regScratch, localOnly), goTo(RoutedEndpoint))
		}
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(Classify, 12, match(of.Eq(of.InPort, l.c.Host), eth, own), of.Set(regFlags, flagHostSocket), goTo(RoutedNetwork))
		l.add(Classify, 11, match(of.Eq(of.InPort, l.c.Host), eth), goTo(RoutedNetwork))
		l.add(ExternalSource, 10, match(eth, origin(fromHostRouted)), goTo(RoutedEndpoint))
		// One tuple, one owner: see serviceBase.
		l.drop(ConntrackState, 92, match(eth, origin(fromHostRouted), isServiceConn, of.State(of.StateTrk, of.StateNew|of.StateRel|of.StateRpl)), driver.DropInvalid)
		l.drop(ConntrackState, 93, match(eth, isService, isHostStackConn, of.State(of.StateTrk, of.StateNew|of.StateRel)), driver.DropInvalid)
	}
	l.toExternalBase()
	l.stackConnectionFlows()

	toRouterOf := match(origin(fromPort), isToRouterMAC, isReply)
	l.add(Output, 164, match(append(toRouterOf, isHostStackConn)...), of.Set(regPort, l.c.Host), of.OutputReg{Field: regPort})
	l.add(Output, 165, match(append(toRouterOf, isExternalRemoteConn, of.Eq(regPort, l.c.Tunnel))...), of.Set(regPort, uint32(toIngressHost)), goTo(Output))
}

// toExternalBase adds where what containers send to the router goes that is not routed; who
// has led the client of a connection here gets its answers, at the end.
func (l baseFlows) toExternalBase() {
	l.drop(ToExternal, 0, nil, driver.DropUnknownDest)
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(ToExternal, 200, nd(typ), driver.DropUnknownDest)
	}
	toStack := []of.Action{of.Set(regDst, model.IdentityExternal), of.Set(regPort, l.c.Host), goTo(Conntrack)}
	nowhere := append([]netip.Prefix{l.c.Private.Subnet, l.c.Private.Subnet6}, desired.Blackhole...)
	for _, p := range nowhere {
		if p.IsValid() {
			eth, _, dst := ethOf(p.Addr().Is6())
			l.dropToExternal(l.c, 120, match(eth, of.InPrefix(dst, p)))
		}
	}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} {
		if a.IsValid() {
			l.add(ToExternal, 130, toAddr(a), toStack...)
		}
	}
	l.dropToExternal(l.c, 140, match(isIPv6, of.InPrefix(of.IPv6Src, onLink)))
	for _, eth := range []of.Term{isIP, isIPv6} {
		if port := l.c.Private.TunnelPort; port != 0 { // answers to clients that send from it go on
			l.add(ToExternal, 150, match(eth, isProto(17), of.Eq(of.UDPDst, port)), append([]of.Action{of.Set(regFlags, flagReplyOnly)}, toStack...)...)
		}
		l.add(ToExternal, 10, match(eth), toStack...)
	}
}

// dropToExternal drops what may not leave a routed network; on a joined one it is refused.
func (l *list) dropToExternal(c Config, priority uint16, m of.Match) {
	l.drop(ToExternal, priority, m, driver.DropUnknownDest)
	l.refuse(c, ToExternal, priority+1, match(append(m, joined)...), driver.DropUnknownDest)
}

// socketFlows let through what sockets of the host send. Only their own packets tell whether a
// connection is a socket's; answers, errors and later fragments follow.
func (l baseFlows) socketFlows() {
	client := of.State(0, of.StateRpl|of.StateRel)
	l.add(EgressPolicy0, priorityHostSocket, match(origin(fromHost), isFromHostSocket, client), goTo(ConntrackCommit))
	if l.c.hasRouted() {
		l.add(EgressPolicy0, priorityHostSocket, match(origin(fromHostRouted), isFromHostSocket, client), goTo(ConntrackCommit))
	}
	for _, follows := range []uint32{of.StateRpl, of.StateRel} {
		l.add(EgressPolicy0, priorityHostSocket, match(isHostSocketConn, of.State(follows|of.StateTrk, of.StateInv)), goTo(ConntrackCommit))
	}
}

// stackConnectionFlows remember which connections this host's stack has begun on routed
// networks, and which of these are its sockets'.
func (l baseFlows) stackConnectionFlows() {
	known := of.State(of.StateTrk, of.StateRpl|of.StateRel)
	goesOn := of.State(of.StateTrk, of.StateRpl|of.StateRel|of.StateNew)
	whole := of.Eq(of.IPFrag, uint8(0))
	for _, eth := range []of.Term{isIP, isIPv6} {
		for mark, whose := range map[uint32]of.Term{markHostStack | markHostSocket: isFromHostSocket, markHostStack: isNotFromHostSocket} {
			l.add(ConntrackCommit, 19, match(eth, origin(fromHostRouted), whose, goesOn, whole, of.Eq(of.CtMark, mark)), goTo(Output))
			l.add(ConntrackCommit, 18, match(eth, origin(fromHostRouted), whose, known), commitMarked(mark))
		}
	}
}

// routedNetwork adds how a routed network is found in what the host's stack sends, and
// left by what containers send to the router.
func (l networkFlows) routedNetwork() {
	if !l.c.routesNetwork(l.n) {
		return
	}
	here := network(l.n.ID)
	for _, p := range []netip.Prefix{l.n.Subnet, l.n.Subnet6} {
		if !p.IsValid() {
			continue
		}
		p = p.Masked()
		eth, src, dst := ethOf(p.Addr().Is6())
		l.add(RoutedNetwork, uint16(10+p.Bits()), match(eth, of.InPrefix(dst, p)), routerToRouter( //nolint:gosec // at most 138
			of.Set(regDomain, l.n.Domain()), of.Set(regNetwork, l.n.ID), of.Set(regOrigin, fromHostRouted), of.Set(regSrc, model.IdentityExternal),
			of.Set(regScratch, anyHost), goTo(ExternalSource))...)
		// No external machine has an address of a routed network.
		from := match(eth, of.InPrefix(src, p))
		l.drop(ExternalSource, 110, match(append(from, origin(fromExternalLocal))...), driver.DropSpoof)
		for _, by := range []int{fromHostRouted, fromExternalRemote} {
			l.drop(ExternalSource, 110, match(append(from, origin(by), allHosts)...), driver.DropSpoof)
		}
		l.dropToExternal(l.c, 120, match(eth, of.InPrefix(dst, p)))
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		leave := []of.Action{of.Set(of.TunID, l.n.Tag), goTo(ToExternal)}
		if l.n.Joined != 0 { // what is not routed
			l.add(Router, 20, match(here, eth), leave...)
		} else {
			l.add(Destination, 202, match(here, origin(fromPort), eth, isToRouterMAC), leave...)
		}
		if l.c.clientsByTunnel() {
			l.add(ExternalClient, 110, match(here, eth, unicast), of.Set(regOrigin, fromExternalRemote), of.Set(regScratch, anyHost), goTo(ExternalSource))
		}
	}
}

// routedRouter answers who asks for the router of a routed network.
func (l networkFlows) routedRouter(router netip.Addr) {
	here := []of.Term{network(l.n.ID), origin(fromPort)}
	if router.Is6() {
		l.answersForRouter(l.c, routerAddrs(router), here...)
		return
	}
	l.answerARP(ARPResponder, 220, match(append(here, of.EqAddr(of.ArpTpa, router))...), desired.RouterMAC, router, goTo(ReplyToPort))
}

// toRouted adds the flows by which what the host's stack sends finds an endpoint.
func (l networkFlows) toRouted(mac model.MAC, there []of.Action, own []netip.Addr, who ...of.Term) {
	if !l.c.routesNetwork(l.n) || there == nil {
		return
	}
	for _, a := range own {
		if l.n.Contains(a) {
			l.add(RoutedEndpoint, 100, toAddr(a, append(who, network(l.n.ID))...), append([]of.Action{of.SetField{Field: of.EthDst, Value: of.MAC(mac)}}, there...)...)
		}
	}
}

// Node is an address of a machine of the cluster.
type Node struct {
	Addr, VTEP netip.Addr // VTEP is the tunnel endpoint of its machine
	Here       bool       // the machine is this host
	Known      bool       // else: a tunnel leads there
}

// NodeFlows returns the flows for it: who has the address, and how endpoints of routed
// networks reach it.
func NodeFlows(c Config, x Node) []of.Flow {
	if !c.hasRouted() {
		return nil
	}
	l := &list{cookie: cookie(KindBase, 0)}
	relayed := fromAddr(x.Addr, origin(fromExternalRemote), allHosts)
	l.drop(ExternalSource, 40, relayed, driver.DropSpoof)
	if x.Here {
		l.add(ToNode, 100, toAddr(x.Addr), of.Set(regOrigin, fromRemoteRouted), goTo(Conntrack))
		return l.flows
	}
	l.add(ExternalSource, 50, match(append(relayed, tunnelFrom(x.VTEP))...), of.Set(regSrc, model.IdentityExternal), goTo(Destination))
	l.add(ExternalSource, 50, fromAddr(x.Addr, origin(fromHostRouted)), of.Set(regScratch, localOnly), goTo(RoutedEndpoint))
	if !x.Known || c.Tunnel == 0 {
		l.dropToExternal(c, 100, toAddr(x.Addr))
		return l.flows
	}
	l.add(ToExternal, 100, toAddr(x.Addr), routerToRouter(of.Set(regDst, model.IdentityExternal), tunnelTo(x.VTEP), of.Set(regPort, c.Tunnel), goTo(Conntrack))...)
	return l.flows
}
