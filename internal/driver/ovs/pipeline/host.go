package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/driver"
	of "github.com/contiv/netplugin/v2/internal/driver/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// The way out through the host's own stack: what containers send to the
// virtual router goes to the host's interface in the name of their private
// addresses, and what the host sends to a private address goes to its
// container. Connection tracking translates, in the domain's zone, since
// setting the address fields would leave ICMP errors with the other address in
// the packet they quote, and damages fragments (docs/design/ovs-pipeline.md).

// nowhere are the destinations beside the private subnet that the router does
// not take: this network, loopback, multicast and reserved (RFC 6890).
var nowhere = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
}

func to(p netip.Prefix) of.Term { return of.InPrefix(of.NwDst, p) }

// hostBase adds what the way out needs whatever networks there are.
func hostBase(l *list, c Config) {
	if c.Host == 0 {
		return
	}
	way := c.Private
	router := match(origin(fromPort), of.EqMAC(of.EthDst, way.RouterMAC))
	l.add(Destination, 201, match(append(router, isIP, of.Eq(regWay, wayOpen))...), goTo(Route))
	l.drop(Destination, 199, router, driver.DropUnknownDest)

	l.add(Router, 10, match(isIP, of.Eq(regWay, wayOpen)), goTo(Route))
	l.dropOutside(c, 0, nil)
	// A fragment whose addresses are translated by now would be tracked once more as
	// one of another connection.
	l.add(Commit, 9, match(isIP, isFragment, of.Eq(regPort, c.Host)), goTo(Output))
	l.add(Commit, 9, match(isIP, isFragment, origin(fromHost)), goTo(Output))

	out := []of.Action{
		of.Set(regDst, model.IdentityExternal),
		of.SetField{Field: of.EthDst, Value: of.MAC(way.RouterMAC)},
		of.Set(regPort, c.Host), goTo(Track),
	}
	if way.TunnelPort != 0 {
		l.dropOutside(c, 150, match(isIP, isProto(17), of.Eq(of.UDPDst, way.TunnelPort)))
	}
	l.add(Route, 100, match(isIP), out...)
	l.add(Route, 130, match(isIP, of.EqAddr(of.NwDst, way.Addr)), out...)
	for _, p := range append([]netip.Prefix{way.Subnet}, nowhere...) {
		l.dropOutside(c, 120, match(isIP, to(p)))
		l.add(Route, 125, match(isIP, to(p), of.Eq(regWay, wayDiverted)), of.Set(regWay, 0), goTo(Destination))
	}

	// Classify has set the registers of packets from the host, see hostPort.
	l.add(Source, 10, match(origin(fromHost), isIP), goTo(Track))
	for _, p := range tracked(false) {
		translate := of.CT{ZoneField: regDomain, Recirc: true, Table: uint8(State), NAT: of.NATKnown}
		l.add(Track, 110, match(isIP, isProto(int(p)), of.Eq(regPort, c.Host)), translate)
		l.add(Track, 110, match(isIP, isProto(int(p)), origin(fromHost)), translate)
	}
}

// hostNetwork adds what the way out needs for a network: the router's ARP, what
// the router does not take, and what is diverted from a physical router.
func hostNetwork(l *list, c Config, n *desired.Network) {
	if c.Host == 0 || !n.Subnet.IsValid() {
		return
	}
	inside := match(network(n.ID), isIP, to(n.Subnet.Masked()))
	l.drop(Route, 140, inside, driver.DropUnknownDest)
	l.drop(Source, 200, match(domain(n), origin(fromHost), isIP, of.InPrefix(of.NwSrc, n.Subnet.Masked())), driver.DropSpoof)
	open := of.Eq(regWay, wayOpen)
	if n.Joined != 0 {
		return // its router answers in any case
	}
	if r := n.Router(); r.IsValid() {
		l.answerARP(Neighbour, 220, match(network(n.ID), open, of.EqAddr(of.ArpTpa, r)), c.Private.RouterMAC, r, goTo(Answer))
		return
	}
	l.add(Route, 145, match(append(inside, of.Eq(regWay, wayDiverted))...), of.Set(regWay, 0), goTo(Destination))
	for _, m := range []of.Match{
		match(of.EqAddr(of.NwDst, c.Private.Addr)),
		match(isProto(17), of.Eq(of.UDPDst, 53)),
		match(isProto(6), of.Eq(of.TCPDst, 53)),
	} {
		l.add(Destination, 200, match(append(m, network(n.ID), isIP, open, unicast)...), of.Set(regWay, wayDiverted), goTo(Route))
	}
}

// hostPort adds what a port's private address needs, and tells whether the port
// has one.
func hostPort(l *list, c Config, n *desired.Network, p LocalPort) bool {
	if c.Host == 0 || !p.Private.IsValid() || !p.IPv4.IsValid() {
		return false
	}
	host, private := of.Eq(of.InPort, c.Host), of.EqAddr(of.NwDst, p.Private)
	l.answerARP(Classify, 100, match(host, of.EqAddr(of.ArpTpa, p.Private)), p.MAC, p.Private, of.Output{Port: of.PortInPort})
	l.add(Classify, 100, match(host, isIP, private),
		of.Set(regDomain, n.Domain()), of.Set(regNetwork, n.ID), of.Set(regOrigin, fromHost), of.Set(regSrc, model.IdentityExternal),
		of.Set(regDst, p.Identity), of.Set(regIn, p.Policies), of.Set(regPort, p.Number),
		of.SetField{Field: of.EthSrc, Value: of.MAC(c.Private.RouterMAC)}, of.SetField{Field: of.EthDst, Value: of.MAC(p.MAC)},
		goTo(Source))

	// Connections that come by the host are begun towards the private address.
	l.quotes(of.Eq(of.InPort, p.Number), p.IPv4, p.Private)

	isNew, untracked := of.State(of.StateNew|of.StateTrk, 0), of.State(0, of.StateTrk)
	isRelated := of.State(of.StateRel|of.StateTrk, of.StateRpl|of.StateNew|of.StateInv)
	leaving := match(network(n.ID), isIP, of.Eq(regPort, c.Host), of.EqAddr(of.NwSrc, p.IPv4))
	coming := match(network(n.ID), isIP, origin(fromHost), private)
	for _, w := range []struct {
		m     of.Match
		nat   of.NAT
		field of.Field
		to    netip.Addr
	}{{leaving, of.NATSrc, of.NwSrc, p.Private}, {coming, of.NATDst, of.NwDst, p.IPv4}} {
		l.add(Commit, 20, match(append(w.m, isNew)...), of.CT{Commit: true, ZoneField: regDomain, NAT: w.nat, To: w.to, Recirc: true, Table: uint8(Output)})
		// The kernel translates an error that goes in its connection's own direction
		// only where the connection is committed; user space has done it by now, and
		// the address does not match any more.
		l.add(Commit, 20, match(append(w.m, isRelated)...), of.CT{Commit: true, ZoneField: regDomain, NAT: of.NATKnown, Recirc: true, Table: uint8(Output)})
		l.add(Output, 110, match(append(w.m, untracked)...), of.SetField{Field: w.field, Value: of.Addr(w.to)}, of.OutputReg{Field: regPort})
	}
	return true
}
