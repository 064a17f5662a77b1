package pipeline

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Egress through the host's own stack: what containers send to the
// virtual router goes to the host's interface in the name of their private
// addresses, and what the host sends to a private address goes to its
// container. Connection tracking translates, in the domain's zone, since
// setting the address fields would leave ICMP errors with the other address in
// the packet they quote, and damages fragments (docs/design/ovs-pipeline.md).

// family is what differs between egress of IPv4 and of IPv6.
type family struct {
	eth      of.Term
	src, dst of.Field
	subnet   netip.Prefix // of private addresses
	addr     netip.Addr   // the host's own one
	bit      int          // in regFlags: the packet's port has a private address
}

// families are the ones with egress.
func families(c Config) []family {
	if c.Host == 0 {
		return nil
	}
	four := family{isIP, of.NwSrc, of.NwDst, c.Private.Subnet, c.Private.Addr, flagEgress4}
	if !c.Private.Subnet6.IsValid() {
		return []family{four}
	}
	return []family{four, {isIPv6, of.IPv6Src, of.IPv6Dst, c.Private.Subnet6, c.Private.Addr6, flagEgress6}}
}

func (x family) six() bool                     { return x.bit == flagEgress6 }
func (x family) open() of.Term                 { return of.Masked(regFlags, of.Uint(x.bit), of.Uint(x.bit)) }
func (x family) to(p netip.Prefix) []of.Term   { return []of.Term{x.eth, of.InPrefix(x.dst, p)} }
func (x family) from(p netip.Prefix) []of.Term { return []of.Term{x.eth, of.InPrefix(x.src, p)} }

// ofNetwork are the subnet of a network and the router's address there.
func (x family) ofNetwork(n *desired.Network) (subnet netip.Prefix, router netip.Addr) {
	if x.six() {
		return n.Subnet6, n.Router6()
	}
	return n.Subnet, n.Router()
}

// ofPort are a port's own address and its private one.
func (x family) ofPort(p LocalPort) (own, private netip.Addr) {
	if x.six() {
		return p.IPv6, p.Private6
	}
	return p.IPv4, p.Private
}

// onLink are the addresses that get no answers from beyond a network.
var onLink = netip.MustParsePrefix("fe80::/10")

var diverted = of.Eq(regFlags, flagDiverted)

// restoreRoute sends a packet on its way to the physical router.
func (l *list) restoreRoute(priority uint16, m of.Match) {
	l.add(HostEgress, priority, match(append(m, diverted)...), of.Set(regFlags, 0), goTo(Destination))
}

// hostBase adds what egress needs whatever networks there are.
func (l baseFlows) hostBase() {
	if l.c.Host == 0 {
		return
	}
	router := match(origin(fromPort), of.EqMAC(of.EthDst, desired.RouterMAC))
	l.drop(Destination, 198, router, driver.DropUnknownDest)
	l.dropHostEgress(l.c, 0, nil)
	l.socketFlows()
	for _, x := range families(l.c) {
		x.hostBase(l.list, l.c, router)
	}
}

func (x family) hostBase(l *list, c Config, router of.Match) {
	l.add(Destination, 201, match(append(router, x.eth, x.open())...), goTo(HostEgress))
	l.add(Router, 10, match(x.eth, x.open()), goTo(HostEgress))
	// A fragment whose addresses are translated by now would be tracked once more as
	// one of another connection.
	l.add(ConntrackCommit, 9, match(x.eth, isFragment, of.Eq(regPort, c.Host)), goTo(Output))
	l.add(ConntrackCommit, 9, match(x.eth, isFragment, origin(fromHost)), goTo(Output))

	out := []of.Action{
		of.Set(regDst, model.IdentityExternal),
		of.SetField{Field: of.EthDst, Value: of.MAC(desired.RouterMAC)},
		of.Set(regPort, c.Host), goTo(Conntrack),
	}
	if port := c.Private.TunnelPort; port != 0 {
		l.dropHostEgress(c, 150, match(x.eth, isProto(17), of.Eq(of.UDPDst, port)))
	}
	l.add(HostEgress, 100, match(x.eth), out...)
	l.add(HostEgress, 130, toAddr(x.addr), out...)
	for _, p := range append([]netip.Prefix{x.subnet}, desired.Blackhole...) {
		if p.Addr().Is6() == x.six() {
			l.dropHostEgress(c, 120, match(x.to(p)...))
			l.restoreRoute(125, match(x.to(p)...))
		}
	}

	// Classify has set the registers of packets from the host, see hostPort.
	l.add(SourceIdentity, 10, match(origin(fromHost), x.eth), goTo(Conntrack))
	if x.six() {
		for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
			l.drop(Destination, 203, nd(typ, router...), driver.DropUnknownDest)
			l.restoreRoute(135, nd(typ))
			l.drop(SourceIdentity, 210, nd(typ, origin(fromHost)), driver.DropSpoof)
		}
		own := x.from(onLink)
		l.drop(SourceIdentity, 200, match(append(own, origin(fromHost))...), driver.DropSpoof)
		l.drop(HostEgress, 115, match(own...), driver.DropUnknownDest)
		l.drop(HostEgress, 131, toAddr(x.addr, own...), driver.DropUnknownDest)
	}
	for _, p := range tracked(x.six()) {
		translate := of.CT{ZoneField: regDomain, Recirc: true, Table: uint8(ConntrackState), NAT: of.NATKnown}
		l.add(Conntrack, 110, match(x.eth, isProto(int(p)), of.Eq(regPort, c.Host)), translate)
		l.add(Conntrack, 110, match(x.eth, isProto(int(p)), origin(fromHost)), translate)
	}
}

// hostNetwork adds what egress needs for a network: the router's answers to
// ARP and neighbour discovery, what the router does not take, and what is diverted
// from a physical router.
func (l networkFlows) hostNetwork() {
	for _, x := range families(l.c) {
		subnet, router := x.ofNetwork(l.n)
		if !subnet.IsValid() {
			continue
		}
		inside := match(append(x.to(subnet.Masked()), network(l.n.ID))...)
		l.drop(HostEgress, 140, inside, driver.DropUnknownDest)
		relayFlows{l.list, l.c}.network(l.n, x, subnet.Masked())
		l.drop(SourceIdentity, 200, match(append(x.from(subnet.Masked()), domain(l.n), origin(fromHost))...), driver.DropSpoof)
		switch {
		case l.n.Joined != 0: // its router answers in any case
		case !router.IsValid():
			l.restoreRoute(145, inside)
			for _, m := range []of.Match{
				match(of.EqAddr(x.dst, x.addr)),
				match(isProto(17), of.Eq(of.UDPDst, 53)),
				match(isProto(6), of.Eq(of.TCPDst, 53)),
			} {
				l.add(Destination, 200, match(append(m, network(l.n.ID), x.eth, x.open(), unicast)...), of.Set(regFlags, flagDiverted), goTo(HostEgress))
			}
		case l.n.Routed: // no endpoint there has a NAT address
			l.routedRouter(router)
		case x.six():
			l.answersForRouter(l.c, routerAddrs(router), network(l.n.ID), origin(fromPort), x.open())
		default:
			l.answerARP(ARPResponder, 220, match(network(l.n.ID), x.open(), of.EqAddr(of.ArpTpa, router)), desired.RouterMAC, router, goTo(ReplyToPort))
		}
	}
}

// hostPort adds what a port's private addresses need, and returns the port's regFlags.
func (l networkFlows) hostPort(p LocalPort) (way int) {
	for _, x := range families(l.c) {
		own, private := x.ofPort(p)
		if own.IsValid() && private.IsValid() {
			way |= x.bit
			x.hostPort(l.list, l.c, l.n, p, own, private)
		}
	}
	return way
}

func (x family) hostPort(l *list, c Config, n *desired.Network, p LocalPort, own, private netip.Addr) {
	host := of.Eq(of.InPort, c.Host)
	if !x.six() {
		l.answerARP(Classify, 100, match(host, of.EqAddr(of.ArpTpa, private)), p.MAC, private, of.Output{Port: of.PortInPort})
	}
	toPort := []of.Action{
		of.Set(regDomain, n.Domain()), of.Set(regNetwork, n.ID), of.Set(regOrigin, fromHost), of.Set(regSrc, model.IdentityExternal),
		of.Set(regDst, p.Identity), of.Set(regIngressSet, p.Policies), of.Set(regPort, p.Number),
		of.SetField{Field: of.EthSrc, Value: of.MAC(desired.RouterMAC)},
		of.SetField{Field: of.EthDst, Value: of.MAC(p.MAC)},
		goTo(SourceIdentity),
	}
	l.add(Classify, 100, toAddr(private, host), toPort...)
	l.add(Classify, 101, toAddr(private, host, c.sentBySocket()), append([]of.Action{of.Set(regFlags, flagHostSocket)}, toPort...)...)

	// Connections that come by the host are begun towards the private address.
	l.allowICMPErrors(of.Eq(of.InPort, p.Number), own, private)

	isNew, untracked := of.State(of.StateNew|of.StateTrk, 0), of.State(0, of.StateTrk)
	isRelated := of.State(of.StateRel|of.StateTrk, of.StateRpl|of.StateNew|of.StateInv)
	leaving := fromAddr(own, network(n.ID), of.Eq(regPort, c.Host))
	x.rememberExternal(l, slices.Clone(leaving), private)
	coming := toAddr(private, network(n.ID), origin(fromHost))
	bySocket := match(append(slices.Clone(coming), isFromHostSocket, isNew)...)
	l.add(ConntrackCommit, 21, bySocket, of.CT{Commit: true, ZoneField: regDomain, NAT: of.NATDst, To: own, Mark: markHostSocket, Recirc: true, Table: uint8(Output)})
	for _, w := range []struct {
		m     of.Match
		nat   of.NAT
		field of.Field
		to    netip.Addr
		mark  uint32
	}{{leaving, of.NATSrc, x.src, private, markNoService}, {coming, of.NATDst, x.dst, own, 0}} {
		l.add(ConntrackCommit, 20, match(append(w.m, isNew)...), of.CT{Commit: true, ZoneField: regDomain, NAT: w.nat, To: w.to, Mark: w.mark, Recirc: true, Table: uint8(Output)})
		// The kernel translates an error that goes in its connection's own direction
		// only where the connection is committed; user space has done it by now, and
		// the address does not match any more.
		l.add(ConntrackCommit, 20, match(append(w.m, isRelated)...), of.CT{Commit: true, ZoneField: regDomain, NAT: of.NATKnown, Recirc: true, Table: uint8(Output)})
		l.add(Output, 110, match(append(w.m, untracked)...), of.SetField{Field: w.field, Value: of.Addr(w.to)}, of.OutputReg{Field: regPort})
	}
}
