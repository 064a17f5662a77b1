package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Native networks (docs/design/native.md): the stacks of all hosts and endpoints there
// speak to each other by their own addresses.

// OwnMAC is the source of what sockets of the host have sent by the host's interface,
// where the datapath sees no marks; all else has the interface's own address there.
var OwnMAC = model.MAC{0x02, 0x01, 0, 0, 0, 2}

// What ct_mark says of a connection: this host's stack has begun it, or has led its
// client here; and, beside that, a socket of this host has sent its client's last packet.
const (
	fromThisStack = 8
	ofSocket      = 16
)

// What is known in regSwap of who speaks to a native network, before tracking.
const (
	localOnly = 1 // endpoints' hosts would not believe its address
	anyHost   = 2
)

// priorityOwn in the first table of policy is above all rules and hooks.
const priorityOwn = 0xffff

var (
	allHosts        = of.Eq(regSwap, anyHost)
	isFromThisStack = of.Masked(of.CtMark, of.Uint(fromThisStack), of.Uint(fromThisStack))
	isOfSocket      = of.Masked(of.CtMark, of.Uint(ofSocket), of.Uint(ofSocket))
	isOwn           = of.Masked(regWay, of.Uint(wayOwn), of.Uint(wayOwn))
	isNotOwn        = of.Masked(regWay, of.Value{}, of.Uint(wayOwn))
)

// hasRouted reports whether the flows for native networks are there.
func (c Config) hasRouted() bool { return c.Routed && c.Host != 0 }

// routesNetwork reports whether they are for this network.
func (c Config) routesNetwork(n *desired.Network) bool { return c.hasRouted() && n.Routed }

// sentBySocket matches packets by the host's interface that sockets of the host have sent.
func (c Config) sentBySocket() of.Term {
	if c.Marks {
		return of.Eq(of.PktMark, desired.OwnMark)
	}
	return of.EqMAC(of.EthSrc, OwnMAC)
}

// routedBase adds what native networks need whatever networks and machines there are.
func (l baseFlows) routedBase() {
	if !l.c.hasRouted() {
		return
	}
	own := l.c.sentBySocket()
	l.drop(RoutedNet, 0, nil, driver.DropNetwork)
	l.drop(RoutedTo, 0, nil, driver.DropUnknownDest)
	l.drop(RoutedTo, 10, match(of.Eq(regSwap, localOnly)), driver.DropSpoof)
	l.add(ToNode, 0, nil, goTo(Track))
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(Outside, 300, nd(typ, origin(fromNode)), driver.DropSpoof)
	}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} {
		if a.IsValid() { // it means nothing on other hosts
			l.add(Outside, 250, fromAddr(a, origin(fromNode)), of.Set(regSwap, localOnly), goTo(RoutedTo))
		}
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(Classify, 12, match(of.Eq(of.InPort, l.c.Host), eth, own), of.Set(regWay, wayOwn), goTo(RoutedNet))
		l.add(Classify, 11, match(of.Eq(of.InPort, l.c.Host), eth), goTo(RoutedNet))
		l.add(Outside, 10, match(eth, origin(fromNode)), goTo(RoutedTo))
		// One tuple, one owner: see serviceBase.
		l.drop(State, 92, match(eth, origin(fromNode), isMarked, of.State(of.StateTrk, of.StateNew|of.StateRel|of.StateRpl)), driver.DropInvalid)
		l.drop(State, 93, match(eth, isService, isFromThisStack, of.State(of.StateTrk, of.StateNew|of.StateRel)), driver.DropInvalid)
	}
	l.leaveBase()
	l.stackConnectionFlows()

	toRouterOf := match(origin(fromPort), toItsMAC, isAnswer)
	l.add(Output, 164, match(append(toRouterOf, isFromThisStack)...), of.Set(regPort, l.c.Host), of.OutputReg{Field: regPort})
	l.add(Output, 165, match(append(toRouterOf, isByTunnel, of.Eq(regPort, l.c.Tunnel))...), of.Set(regPort, uint32(toRouter)), goTo(Output))
}

// leaveBase adds where what containers send to the router goes that is not routed; who
// has led the client of a connection here gets its answers, at the end.
func (l baseFlows) leaveBase() {
	l.drop(ToExternal, 0, nil, driver.DropUnknownDest)
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(ToExternal, 200, nd(typ), driver.DropUnknownDest)
	}
	toStack := []of.Action{of.Set(regDst, model.IdentityExternal), of.Set(regPort, l.c.Host), goTo(Track)}
	nowhere := append([]netip.Prefix{l.c.Private.Subnet, l.c.Private.Subnet6}, desired.Blackhole...)
	for _, p := range nowhere {
		if p.IsValid() {
			eth, _, dst := ethOf(p.Addr().Is6())
			l.dropLeaving(l.c, 120, match(eth, of.InPrefix(dst, p)))
		}
	}
	for _, a := range []netip.Addr{l.c.Private.Addr, l.c.Private.Addr6} {
		if a.IsValid() {
			l.add(ToExternal, 130, toAddr(a), toStack...)
		}
	}
	l.dropLeaving(l.c, 140, match(isIPv6, of.InPrefix(of.IPv6Src, onLink)))
	for _, eth := range []of.Term{isIP, isIPv6} {
		if port := l.c.Private.TunnelPort; port != 0 { // answers to clients that send from it go on
			l.add(ToExternal, 150, match(eth, isProto(17), of.Eq(of.UDPDst, port)), append([]of.Action{of.Set(regWay, replyPath)}, toStack...)...)
		}
		l.add(ToExternal, 10, match(eth), toStack...)
	}
}

// dropLeaving drops what may not leave a native network; on a joined one it is refused.
func (l *list) dropLeaving(c Config, priority uint16, m of.Match) {
	l.drop(ToExternal, priority, m, driver.DropUnknownDest)
	l.refuse(c, ToExternal, priority+1, match(append(m, joined)...), driver.DropUnknownDest)
}

// socketFlows let through what sockets of the host send. Only their own packets tell whether a
// connection is a socket's; answers, errors and later fragments follow.
func (l baseFlows) socketFlows() {
	client := of.State(0, of.StateRpl|of.StateRel)
	l.add(Out0, priorityOwn, match(origin(fromHost), isOwn, client), goTo(Commit))
	if l.c.hasRouted() {
		l.add(Out0, priorityOwn, match(origin(fromNode), isOwn, client), goTo(Commit))
	}
	for _, follows := range []uint32{of.StateRpl, of.StateRel} {
		l.add(Out0, priorityOwn, match(isOfSocket, of.State(follows|of.StateTrk, of.StateInv)), goTo(Commit))
	}
}

// stackConnectionFlows remember which connections this host's stack has begun on native
// networks, and which of these are its sockets'.
func (l baseFlows) stackConnectionFlows() {
	known := of.State(of.StateTrk, of.StateRpl|of.StateRel)
	goesOn := of.State(of.StateTrk, of.StateRpl|of.StateRel|of.StateNew)
	whole := of.Eq(of.IPFrag, uint8(0))
	for _, eth := range []of.Term{isIP, isIPv6} {
		for mark, whose := range map[uint32]of.Term{fromThisStack | ofSocket: isOwn, fromThisStack: isNotOwn} {
			l.add(Commit, 19, match(eth, origin(fromNode), whose, goesOn, whole, of.Eq(of.CtMark, mark)), goTo(Output))
			l.add(Commit, 18, match(eth, origin(fromNode), whose, known), commitMarked(mark))
		}
	}
}

// routedNetwork adds how a native network is found in what the host's stack sends, and
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
		l.add(RoutedNet, uint16(10+p.Bits()), match(eth, of.InPrefix(dst, p)), routerToRouter( //nolint:gosec // at most 138
			of.Set(regDomain, l.n.Domain()), of.Set(regNetwork, l.n.ID), of.Set(regOrigin, fromNode), of.Set(regSrc, model.IdentityExternal),
			of.Set(regSwap, anyHost), goTo(Outside))...)
		// No external machine has an address of a routed network.
		from := match(eth, of.InPrefix(src, p))
		l.drop(Outside, 110, match(append(from, origin(fromStack))...), driver.DropSpoof)
		for _, by := range []int{fromNode, fromRouter} {
			l.drop(Outside, 110, match(append(from, origin(by), allHosts)...), driver.DropSpoof)
		}
		l.dropLeaving(l.c, 120, match(eth, of.InPrefix(dst, p)))
	}
	for _, eth := range []of.Term{isIP, isIPv6} {
		leave := []of.Action{of.Set(of.TunID, l.n.Tag), goTo(ToExternal)}
		if l.n.Joined != 0 { // what is not routed
			l.add(Router, 20, match(here, eth), leave...)
		} else {
			l.add(Destination, 202, match(here, origin(fromPort), eth, toItsMAC), leave...)
		}
		if l.c.clientsByTunnel() {
			l.add(Relayed, 110, match(here, eth, unicast), of.Set(regOrigin, fromRouter), of.Set(regSwap, anyHost), goTo(Outside))
		}
	}
}

// routedRouter answers who asks for the router of a native network.
func (l networkFlows) routedRouter(router netip.Addr) {
	here := []of.Term{network(l.n.ID), origin(fromPort)}
	if router.Is6() {
		l.advertises(l.c, routerAddrs(router), here...)
		return
	}
	l.answerARP(Neighbour, 220, match(append(here, of.EqAddr(of.ArpTpa, router))...), desired.RouterMAC, router, goTo(Answer))
}

// toRouted adds the flows by which what the host's stack sends finds an endpoint.
func (l networkFlows) toRouted(mac model.MAC, there []of.Action, own []netip.Addr, who ...of.Term) {
	if !l.c.routesNetwork(l.n) || there == nil {
		return
	}
	for _, a := range own {
		if l.n.Contains(a) {
			l.add(RoutedTo, 100, toAddr(a, append(who, network(l.n.ID))...), append([]of.Action{of.SetField{Field: of.EthDst, Value: of.MAC(mac)}}, there...)...)
		}
	}
}

// Node is an address of a machine of the cluster.
type Node struct {
	Addr, VTEP netip.Addr // VTEP is the tunnel endpoint of its machine
	Here       bool       // the machine is this host
	Known      bool       // else: a tunnel leads there
}

// NodeFlows returns the flows for it: who has the address, and how endpoints of native
// networks reach it.
func NodeFlows(c Config, x Node) []of.Flow {
	if !c.hasRouted() {
		return nil
	}
	l := &list{cookie: cookie(KindBase, 0)}
	relayed := fromAddr(x.Addr, origin(fromRouter), allHosts)
	l.drop(Outside, 40, relayed, driver.DropSpoof)
	if x.Here {
		l.add(ToNode, 100, toAddr(x.Addr), of.Set(regOrigin, fromPod), goTo(Track))
		return l.flows
	}
	l.add(Outside, 50, match(append(relayed, tunnelFrom(x.VTEP))...), of.Set(regSrc, model.IdentityExternal), goTo(Destination))
	l.add(Outside, 50, fromAddr(x.Addr, origin(fromNode)), of.Set(regSwap, localOnly), goTo(RoutedTo))
	if !x.Known || c.Tunnel == 0 {
		l.dropLeaving(c, 100, toAddr(x.Addr))
		return l.flows
	}
	l.add(ToExternal, 100, toAddr(x.Addr), routerToRouter(of.Set(regDst, model.IdentityExternal), tunnelTo(x.VTEP), of.Set(regPort, c.Tunnel), goTo(Track))...)
	return l.flows
}
