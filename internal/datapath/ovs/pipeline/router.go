package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Routing between the networks that a tenant's router joins (docs/design/routing.md).
// The sender's host routes: what comes by tunnel or uplink it only delivers.

// The meters of the bridge.
const (
	MeterRefusals   = 1 // packets that the router refuses, and the driver answers
	MeterNeighbours = 2 // questions for the router that the driver answers, with Config.Relay
	MeterServices   = 3 // packets to services that the driver answers, or sends once more
	MeterReopen     = 5 // segments of TCP for a connection that may be closed (MeterFabric is 4)
)

// refusedLen is how much of a packet an answer may quote (RFC 4443 section 2.4: an
// answer has at most 1,280 bytes), with its Ethernet header.
const refusedLen = 1280

// ethernetLen is the length of an Ethernet header in bytes.
const ethernetLen = 14

// tooBig matches, from TTLCheck to NextHop, what does not fit a VXLAN network: what a VLAN
// network's endpoints send may be bigger. NextHop overwrites the field.
var tooBig = of.Masked(regPort, of.Uint(1), of.Uint(1))

// joined matches packets in a domain of joined networks.
var joined = func() of.Term {
	bit := of.Uint((&desired.Network{Joined: 1}).Domain() &^ 1)
	return of.Masked(regDomain, bit, bit)
}()

// refuse adds a flow that drops, and lets the driver tell the sender why.
func (l *list) refuse(c Config, s Stage, priority uint16, m of.Match, reason string) {
	l.refuseBy(c, MeterRefusals, s, priority, m, reason)
}

func (l *list) refuseBy(c Config, meter uint32, s Stage, priority uint16, m of.Match, reason string) {
	l.drop(s, priority, m, reason)
	if c.Answers {
		f := &l.flows[len(l.flows)-1]
		f.Cookie |= AnswerBit
		f.Actions = []of.Action{of.Meter{ID: meter}, of.Controller{MaxLen: refusedLen}}
	}
}

// dropHostEgress adds a flow that drops what egress does not take, and refuses it
// to a network that is joined.
func (l *list) dropHostEgress(c Config, priority uint16, m of.Match) {
	l.drop(HostEgress, priority, m, driver.DropUnknownDest)
	l.refuse(c, HostEgress, priority+1, match(append(m, joined, origin(fromPort))...), driver.DropUnknownDest)
}

// Refusal is what the router tells a sender: ICMP type and code.
type Refusal struct {
	V4, V6 [2]uint8
	TooBig bool // with the size that fits, in the name of whom the packet is for
}

// RefusalOf tells what is to be answered to a packet that a flow has sent up; ok is
// false when the packet is not to be answered.
func RefusalOf(table uint8, cookie uint64) (r Refusal, ok bool) {
	kind, why, ours := KindOf(cookie)
	if !ours || kind != KindDrop || cookie&AnswerBit == 0 {
		return r, false
	}
	s := Stage(table)
	if s == SelectBackend || s == BackendCheck || Reopens(table, cookie) {
		return r, false // not the router's
	}
	if s == TTLCheck {
		return Refusal{V4: [2]uint8{11, 0}, V6: [2]uint8{3, 0}}, true // time exceeded
	}
	if Reason(why) == driver.DropTooBig {
		return Refusal{V4: [2]uint8{3, 4}, V6: [2]uint8{2, 0}, TooBig: true}, true // fragmentation needed, packet too big
	}
	if s == NextHop {
		return Refusal{V4: [2]uint8{3, 1}, V6: [2]uint8{1, 3}}, true // host unreachable
	}
	return Refusal{V4: [2]uint8{3, 0}, V6: [2]uint8{1, 0}}, true
}

// IsRouterSolicitation reports whether a packet that a flow has sent up is a question for the
// router's link address.
func IsRouterSolicitation(table uint8, cookie uint64) bool {
	kind, _, ours := KindOf(cookie)
	return ours && (kind == KindNetwork || kind == KindService) && cookie&AnswerBit != 0 && Stage(table) == ARPResponder
}

// routerBase adds what routing needs whatever networks there are.
func (l baseFlows) routerBase() {
	l.drop(CrossNetwork, 0, nil, driver.DropUnknownSource)
	l.add(CrossNetwork, 10, match(origin(fromTunnel)), goTo(TunnelSource))
	l.add(CrossNetwork, 10, match(origin(fromUplink)), goTo(SourceIdentity))
	for from, reason := range map[int]string{fromTunnel: driver.DropUnknownSource, fromUplink: driver.DropSpoof} {
		l.drop(CrossNetworkSource, 10, match(origin(from)), reason)
		for typ := ndRouterSolicit; typ <= ndRedirect; typ++ { // neighbour discovery stays within its network
			l.drop(CrossNetworkSource, 200, nd(typ, origin(from)), reason)
		}
	}
	l.drop(CrossNetworkSource, 0, nil, driver.DropUnknownSource)

	router := match(origin(fromPort), joined, of.EqMAC(of.EthDst, desired.RouterMAC))
	l.drop(Destination, 198, router, driver.DropUnknownDest)
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(Destination, 202, match(append(router, eth)...), goTo(Router))
	}
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.drop(Destination, 203, nd(typ, router...), driver.DropUnknownDest)
	}
	l.refuse(l.c, Router, 0, nil, driver.DropUnknownDest)

	// Another network does not know a sender without an identity, nor one with an address
	// outside its network's subnets.
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.drop(TTLCheck, 310, match(eth, of.Eq(of.IPTTL, 0)), driver.DropInvalid)
	}
	l.drop(TTLCheck, 300, match(of.Eq(regSrc, model.IdentityUnknown)), driver.DropUnknownSource)
	l.drop(TTLCheck, 0, nil, driver.DropUnknownSource)
	l.refuse(l.c, NextHop, 0, nil, driver.DropUnknownDest)
}

// enterOf is the stage that looks at frames from tunnel or uplink whose sender is on
// the frame's own network.
func enterOf(n *desired.Network) Stage {
	if n.Encap == model.EncapVLAN {
		return SourceIdentity
	}
	return TunnelSource
}

// routerNetwork adds what a joined network needs.
func (l networkFlows) routerNetwork() {
	enter := enterOf(l.n)
	for _, p := range []netip.Prefix{l.n.Subnet, l.n.Subnet6} {
		if !p.IsValid() {
			continue
		}
		p = p.Masked()
		eth, src, dst := isIP, of.NwSrc, of.NwDst
		if p.Addr().Is6() {
			eth, src, dst = isIPv6, of.IPv6Src, of.IPv6Dst
		}
		l.add(CrossNetwork, 150, match(network(l.n.ID), eth, of.InPrefix(src, p)), goTo(enter))
		l.add(CrossNetwork, 100, match(domain(l.n), eth, of.InPrefix(src, p)), goTo(CrossNetworkSource))
		if p.Addr().Is4() {
			l.add(CrossNetwork, 150, match(network(l.n.ID), isARP, of.InPrefix(of.ArpSpa, p)), goTo(enter))
			l.add(CrossNetwork, 100, match(domain(l.n), isARP, of.InPrefix(of.ArpSpa, p)), goTo(CrossNetworkSource))
		}
		l.drop(Router, 110, match(network(l.n.ID), eth, of.InPrefix(dst, p)), driver.DropUnknownDest)
		l.add(Router, 100, match(domain(l.n), eth, of.InPrefix(dst, p)), goTo(TTLCheck))
		l.refuse(l.c, TTLCheck, 200, match(network(l.n.ID), eth, of.InPrefix(src, p), of.Eq(of.IPTTL, 1)), driver.DropTTL)
		on := []of.Action{goTo(NextHop)}
		if l.c.MTU != 0 && l.n.Encap == model.EncapVLAN {
			on = []of.Action{of.CheckLarger{Len: l.c.MTU + ethernetLen, Into: regPort}, goTo(NextHop)}
		}
		l.add(TTLCheck, 100, match(network(l.n.ID), eth, of.InPrefix(src, p)), on...)
		if l.c.MTU != 0 && l.n.Encap == model.EncapVXLAN {
			l.refuse(l.c, NextHop, 110, match(domain(l.n), eth, of.InPrefix(dst, p), tooBig), driver.DropTooBig)
		}
	}
	here := []of.Term{network(l.n.ID), origin(fromPort)}
	if r := l.n.Router(); r.IsValid() {
		l.answerARP(ARPResponder, 220, match(append(here, of.EqAddr(of.ArpTpa, r))...), desired.RouterMAC, r, goTo(ReplyToPort))
	}
	if r := l.n.Router6(); r.IsValid() {
		l.answersForRouter(l.c, routerAddrs(r), here...)
	}
}

// routerAddrs are the addresses of a network's router: its own and its link-local one.
func routerAddrs(r netip.Addr) []netip.Addr {
	return addresses(desired.RouterMAC, netip.Addr{}, r)
}

// answersForRouter answers who asks for addresses with the router's MAC.
func (l *list) answersForRouter(c Config, own []netip.Addr, where ...of.Term) {
	if !c.Relay {
		addressReplies(l, c, desired.RouterMAC, own, where...)
		return
	}
	if !c.Answers {
		return
	}
	before := l.cookie
	l.cookie |= AnswerBit
	for _, a := range own {
		l.add(ARPResponder, 220, nd(ndNeighborSolicit, append(where, of.EqAddr(of.NdTarget, a))...),
			of.Meter{ID: MeterNeighbours}, of.Controller{MaxLen: sampleLen})
	}
	l.cookie = before
}

// nextHop adds the flows that take routed packets to an endpoint on network n. Between
// hosts the frame keeps its sender's MAC.
func (l networkFlows) nextHop(mac model.MAC, v4, v6 netip.Addr, acts []of.Action) {
	hop := []of.Action{of.DecTTL{}, of.SetField{Field: of.EthDst, Value: of.MAC(mac)}, of.Set(regNetwork, l.n.ID)}
	for _, a := range []netip.Addr{v4, v6} {
		if l.n.Contains(a) {
			l.add(NextHop, 100, toAddr(a, domain(l.n)), append(hop, acts...)...)
		}
	}
}

// crossNetwork adds the flows that know a remote endpoint as the sender of packets that
// its host has routed to another network.
func (l networkFlows) crossNetwork(r *desired.Remote) {
	if r.Identity == model.IdentityUnknown {
		return
	}
	acts := []of.Action{of.Set(regSrc, r.Identity), of.SetField{Field: of.EthSrc, Value: of.MAC(desired.RouterMAC)}, goTo(Destination)}
	sender := []of.Term{domain(l.n), of.EqMAC(of.EthSrc, r.MAC), unicast}
	for _, a := range addresses(r.MAC, r.IPv4, r.IPv6) {
		if a.Is6() && a.IsLinkLocalUnicast() {
			continue
		}
		if !l.n.Contains(a) { // CrossNetwork does not know the address by a subnet
			l.add(CrossNetwork, 170, fromAddr(a, network(l.n.ID)), goTo(enterOf(l.n)))
			l.add(CrossNetwork, 160, fromAddr(a, domain(l.n)), goTo(CrossNetworkSource))
		}
		if l.c.Tunnel != 0 && r.VTEP.IsValid() {
			l.add(CrossNetworkSource, 100, fromAddr(a, append(sender, origin(fromTunnel), tunnelFrom(r.VTEP))...), acts...)
		}
		if l.c.Uplink != 0 {
			l.add(CrossNetworkSource, 100, fromAddr(a, append(sender, origin(fromUplink))...), acts...)
		}
	}
}
