package pipeline

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
)

// Clients outside of services whose backend is no endpoint ("Backends that are no endpoints" of
// docs/design/services.md): the relay address asks the backend in their place. That source is
// translated in a zone for all domains, whose ct_mark says which domain an answer is for.

// RelayZone is the conntrack zone of these connections. A network of that number has no others
// from clients outside to beyond its subnets.
const RelayZone = 0xffff

// relayFlows collects flows of these connections.
type relayFlows struct {
	*list
	c Config
}

// base adds what they need whatever domains there are.
func (l relayFlows) base() {
	for _, x := range families(l.c) {
		a := l.c.Private.Relay(x.six())
		if !a.IsValid() {
			continue
		}
		outside := origin(fromExternalLocal)
		l.add(Backend, 11, match(x.eth, outside), goTo(HostEgress))
		if port := l.c.Private.TunnelPort; port != 0 {
			l.drop(HostEgress, 153, match(x.eth, outside, isProto(17), of.Eq(of.UDPDst, port)), driver.DropUnknownDest)
		}
		byRelay := []of.Action{of.Set(regZone, RelayZone), serviceConntrack(Relay)}
		back := toAddr(a, of.Eq(of.InPort, l.c.Host))
		answer := routerToRouter(of.Set(regOrigin, fromRelay), of.Set(regZone, RelayZone), serviceConntrack(RelayReply))
		for _, p := range tracked(x.six()) {
			l.add(Conntrack, 115, match(x.eth, isProto(int(p)), outside, of.Eq(regPort, l.c.Host)), byRelay...)
			l.add(Classify, 105, match(append(back, isProto(int(p)))...), answer...)
		}
		l.drop(Classify, 106, match(append(back, isProto(6), of.Masked(of.TCPFlags, of.Uint(2), of.Uint(0x12)))...), driver.DropInvalid)
		l.drop(Classify, 100, back, driver.DropUnknownDest)

		done := fromAddr(a, outside)
		l.add(Relay, 10, match(x.eth, of.State(of.StateRel|of.StateTrk, of.StateRpl|of.StateNew|of.StateInv)), // see hostPort
			of.CT{Commit: true, ZoneField: regZone, NAT: of.NATKnown, Recirc: true, Table: uint8(Output)})
		l.add(Output, 190, match(append(done, of.Eq(regPort, l.c.Host))...), goTo(CountPackets), of.Output{Port: of.PortInPort})
		l.drop(Output, 189, match(x.eth, outside, of.Eq(regPort, l.c.Host)), driver.DropInvalid)
		l.add(ServiceReply, 110, match(x.eth, origin(fromRelay), of.State(of.StateRpl|of.StateTrk, of.StateInv)), goTo(CountPackets), of.Output{Port: of.PortInPort})
	}
	l.drop(Relay, 0, nil, driver.DropInvalid)
	l.drop(RelayReply, 0, nil, driver.DropUnknownDest)
}

// domain adds what they need for a domain whose translations are in a zone.
func (l relayFlows) domain(d desired.Domain, zone uint16) {
	for _, x := range families(l.c) {
		a := l.c.Private.Relay(x.six())
		if !a.IsValid() {
			continue
		}
		// Another domain's connection with this tuple is not this one's.
		l.add(Relay, 30, fromAddr(a, inDomain(d), of.Eq(of.CtMark, uint32(d))), goTo(Output))
		l.add(Relay, 20, match(x.eth, inDomain(d), of.State(of.StateNew|of.StateTrk, 0)), goTo(CountConnections), goTo(LearnAffinity),
			of.CT{Commit: true, ZoneField: regZone, NAT: of.NATSrc, To: a, Mark: uint32(d), Recirc: true, Table: uint8(Output)})
		l.add(RelayReply, 10, match(x.eth, of.Eq(of.CtMark, uint32(d)), of.State(of.StateRpl|of.StateTrk, of.StateInv)),
			of.Set(regDomain, d), noteBackend(x.six()), of.Set(regZone, zone), serviceConntrack(ServiceReply))
	}
}

// network drops what would be relayed to addresses of a network that no endpoint has.
func (l relayFlows) network(n *desired.Network, x family, subnet netip.Prefix) {
	m := append(x.to(subnet), origin(fromExternalLocal))
	if !n.Routed {
		m = append(m, domain(n))
	}
	l.drop(HostEgress, 142, match(m...), driver.DropUnknownDest)
}
