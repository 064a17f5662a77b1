package pipeline

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Config is what all flows of a host depend on.
type Config struct {
	Tunnel    uint32 // port number of the VXLAN port; 0 = none
	Marked    uint32 // port number of the VXLAN port that shows outside how a packet is marked; 0 = none
	Uplink    uint32 // port number of the uplink in use; 0 = none
	Router    uint32 // port number of the host's interface to the untagged segment of the uplink; 0 = none
	ArpMode   model.ArpMode
	Relay     bool            // the datapath cannot make neighbour advertisements: see relay
	Answers   bool            // the driver answers what the virtual router refuses, and the switch bounds that
	MTU       uint16          // of VXLAN networks, in bytes of IP: what is bigger is refused to them; 0 = nothing can be
	PathMTU   uint16          // of the tunnel, in bytes of IP, where local containers have a bigger MTU; 0 = none has
	UplinkMTU uint16          // likewise of the uplink
	Pieces    bool            // tracking passes fragments on one by one
	Host      uint32          // port number of the host's interface; 0 = no egress
	Private   desired.HostNAT // egress, when there is one
	Routed    bool            // there are routed networks
	Marks     bool            // the datapath sees marks of the host's packets; else HostSocketMAC is in their place

	// Mutation makes the pipeline wrong in a known way, so that a test can show
	// that it would notice. Only tests set it.
	Mutation Mutation
}

// Mutation is a seeded fault.
type Mutation uint8

// The faults.
const (
	NoMutation    Mutation = iota
	AllowWinsTies          // the tie between allow and deny is broken the wrong way
	NoReplyMirror          // replies are judged as if they began a connection
	NoIngress              // policy of the destination is not enforced
	NumMutations
)

// Drop reasons by number in the cookie; the texts are those of internal/datapath/driver.
var reasons = []string{
	0: "", 1: driver.DropNoPort, 2: driver.DropNetwork, 3: driver.DropSpoof, 4: driver.DropUnknownSource,
	5: driver.DropUnknownDest, 6: driver.DropPolicy, 7: driver.DropInvalid, 8: driver.DropNotIP,
	9: driver.DropTTL, 10: driver.DropNoProvider, 11: driver.DropTooBig,
}

// Reason returns the text of a drop reason's number.
func Reason(n uint32) string {
	if int(n) < len(reasons) {
		return reasons[n]
	}
	return ""
}

func reasonNumber(text string) uint32 {
	for i, r := range reasons {
		if r == text {
			return uint32(i)
		}
	}
	return 0
}

// list collects flows.
type list struct {
	flows  []of.Flow
	cookie uint64
}

// baseFlows collects the flows that depend on the configuration alone. Base calls its methods.
type baseFlows struct {
	*list
	c Config
}

// networkFlows collects flows of a network, or of an endpoint on it. Network, Port and Remote
// call its methods.
type networkFlows struct {
	*list
	c Config
	n *desired.Network
}

func (l *list) add(s Stage, priority uint16, m of.Match, actions ...of.Action) {
	l.flows = append(l.flows, of.Flow{Table: uint8(s), Priority: priority, Cookie: l.cookie, Match: m, Actions: actions})
}

func (l *list) drop(s Stage, priority uint16, m of.Match, reason string) {
	l.flows = append(l.flows, of.Flow{
		Table: uint8(s), Priority: priority, Cookie: cookie(KindDrop, reasonNumber(reason)), Match: m,
	})
}

func match(terms ...of.Term) of.Match { return of.NewMatch(terms...) }

func goTo(s Stage) of.Action { return of.Resubmit{Table: uint8(s)} }

// Ethernet types and ICMPv6 types.
const (
	ethIP   = 0x0800
	ethARP  = 0x0806
	ethIPv6 = 0x86dd

	protoFragment = 44 // RFC 8200 section 4.5

	ndRouterSolicit   = 133
	ndRouterAdvert    = 134
	ndNeighborSolicit = 135
	ndNeighborAdvert  = 136
	ndRedirect        = 137
)

// Terms that occur often.
var (
	isIP   = of.Eq(of.EthType, ethIP)
	isIPv6 = of.Eq(of.EthType, ethIPv6)
	isARP  = of.Eq(of.EthType, ethARP)

	isFragment  = of.Masked(of.IPFrag, of.Uint(1), of.Uint(1))
	notFragment = of.Masked(of.IPFrag, of.Value{}, of.Uint(1))
	isLater     = of.Eq(of.IPFrag, uint8(3)) // any fragment, and not the first
	untagged    = of.Eq(of.VlanVID, 0)
	broadcast   = of.Masked(of.EthDst, of.MAC([6]byte{1}), of.MAC([6]byte{1})) // and multicast
	unicast     = of.Masked(of.EthDst, of.Value{}, of.MAC([6]byte{1}))
	noMAC       = [6]byte{}
	allNodes    = netip.IPv6LinkLocalAllNodes()
)

func network(n model.NetworkID) of.Term { return of.Eq(regNetwork, n) }
func domain(n *desired.Network) of.Term { return of.Eq(regDomain, n.Domain()) }
func origin(o int) of.Term              { return of.Eq(regOrigin, o) }
func isProto(p int) of.Term             { return of.Eq(of.IPProto, p) }

// nd is a match on a neighbour discovery type.
func nd(typ int, more ...of.Term) of.Match {
	return match(append([]of.Term{isIPv6, isProto(58), of.Eq(of.ICMPv6Type, typ)}, more...)...)
}

// fromAddr matches a source address, of either family, and more terms.
func fromAddr(a netip.Addr, more ...of.Term) of.Match {
	if a.Is4() {
		return match(append([]of.Term{isIP, of.EqAddr(of.NwSrc, a)}, more...)...)
	}
	return match(append([]of.Term{isIPv6, of.EqAddr(of.IPv6Src, a)}, more...)...)
}

// toAddr matches a destination address, of either family, and more terms.
func toAddr(a netip.Addr, more ...of.Term) of.Match {
	if a.Is4() {
		return match(append([]of.Term{isIP, of.EqAddr(of.NwDst, a)}, more...)...)
	}
	return match(append([]of.Term{isIPv6, of.EqAddr(of.IPv6Dst, a)}, more...)...)
}

// Base returns the flows that are there whatever the desired state.
func Base(c Config) []of.Flow {
	l := baseFlows{&list{cookie: cookie(KindBase, 0)}, c}
	l.drop(Classify, 0, nil, driver.DropNoPort)
	for _, p := range []uint32{c.Tunnel, c.Uplink, c.Host, c.Router} {
		if p != 0 {
			l.drop(Classify, 10, match(of.Eq(of.InPort, p)), driver.DropNetwork)
		}
	}
	l.drop(PortSecurity, 0, nil, driver.DropNotIP)
	for _, t := range []of.Term{isIP, isIPv6, isARP} {
		l.drop(PortSecurity, 50, match(t), driver.DropSpoof)
	}
	// Of a message with an option twice or cut short the switch sees neither options
	// nor target; its receiver may see another's address there.
	l.drop(PortSecurity, 110, nd(ndNeighborSolicit, of.EqAddr(of.NdTarget, netip.IPv6Unspecified())), driver.DropSpoof)
	// Neighbour discovery of local ports: a router's messages are never theirs.
	l.add(PortSecurityND, 0, nil, goTo(Destination))
	for typ := ndRouterAdvert; typ <= ndRedirect; typ++ {
		l.drop(PortSecurityND, 50, nd(typ), driver.DropSpoof)
	}
	l.add(PortSecurityND, 50, nd(ndRouterSolicit), goTo(ARPResponder))

	l.drop(TunnelSource, 0, nil, driver.DropUnknownSource)
	l.drop(SourceIdentity, 0, nil, driver.DropUnknownSource)
	// Duplicate detection has no sender address yet.
	l.add(SourceIdentity, 100, match(isARP, of.Eq(of.ArpSpa, 0)), goTo(ARPResponder))
	for _, typ := range []int{ndRouterSolicit, ndNeighborSolicit} {
		l.add(SourceIdentity, 100, nd(typ, of.EqAddr(of.IPv6Src, netip.IPv6Unspecified())), goTo(ARPResponder))
	}
	// Beyond the uplink is the outside.
	l.add(SourceIdentity, 10, match(origin(fromUplink), isIP), of.Set(regSrc, model.IdentityExternal), goTo(Destination))
	l.add(SourceIdentity, 10, match(origin(fromUplink), isIPv6), of.Set(regSrc, model.IdentityExternal), goTo(ARPResponder))
	l.add(SourceIdentity, 10, match(origin(fromUplink), isARP), goTo(ARPResponder))

	l.add(ARPResponder, 0, nil, goTo(Destination))
	l.add(NDAdvertise, 0, nil, of.Move{From: of.EthSrc, To: of.NdTll}, goTo(ReplyToPort))
	l.flows[len(l.flows)-1].Match = nd(ndNeighborAdvert) // what nd_tll needs
	l.drop(ReplyToPort, 0, nil, driver.DropUnknownDest)
	l.add(ReplyToPort, 10, match(origin(fromPort)), of.Output{Port: of.PortInPort})

	l.drop(Destination, 0, nil, driver.DropUnknownDest)
	if c.ArpMode == model.ArpFlood {
		l.add(Destination, 50, match(broadcast), goTo(Flood))
	} else {
		l.drop(Destination, 50, match(broadcast), driver.DropUnknownDest)
		for _, t := range []of.Match{
			match(isARP, broadcast), nd(ndRouterSolicit, broadcast), nd(ndRouterAdvert, broadcast),
			nd(ndNeighborSolicit, broadcast), nd(ndNeighborAdvert, broadcast), nd(ndRedirect, broadcast),
		} {
			l.drop(ARPResponder, 20, t, driver.DropUnknownDest)
		}
	}
	l.add(Destination, 105, match(isARP, unicast), goTo(MACLookup))
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.add(Destination, 105, nd(typ, unicast), goTo(MACLookup))
	}
	l.drop(MACLookup, 0, nil, driver.DropUnknownDest)
	l.drop(Flood, 0, nil, driver.DropUnknownDest)
	l.multicastBase()
	l.add(UplinkIdentity, 0, nil, of.Set(regDst, model.IdentityExternal), goTo(Conntrack))
	l.routerBase()
	l.hostBase()
	l.untaggedBase()
	l.serviceBase()
	l.externalClientBase()
	l.routedBase()
	l.trackFlows()
	l.reopenFlows()
	l.pathMTU()
	l.policyBase()
	l.commitFlows()
	l.drop(Output, 200, match(of.State(of.StateInv, 0)), driver.DropInvalid) // a fragment whose datagram never was complete
	l.drop(Output, 0, match(of.Eq(regPort, 0)), driver.DropUnknownDest)
	l.flows[len(l.flows)-1].Priority = 10
	l.add(Output, 0, nil, of.OutputReg{Field: regPort})
	return l.flows
}

func (l baseFlows) trackFlows() {
	l.drop(Conntrack, 0, nil, driver.DropNotIP)
	l.add(Conntrack, 200, match(isARP), goTo(Output))
	for typ := ndRouterSolicit; typ <= ndRedirect; typ++ {
		l.add(Conntrack, 200, nd(typ), goTo(Output))
	}
	for _, eth := range []of.Term{isIP, isIPv6} { // packets with TTL 0 must not be forwarded
		l.drop(Conntrack, 300, match(eth, of.Eq(of.IPTTL, 0)), driver.DropInvalid)
	}
	track := of.CT{ZoneField: regDomain, Recirc: true, Table: uint8(ConntrackState)}
	for _, p := range tracked(false) {
		l.add(Conntrack, 100, match(isIP, isProto(int(p))), track)
	}
	for _, p := range tracked(true) {
		l.add(Conntrack, 100, match(isIPv6, isProto(int(p))), track)
	}
	// What connection tracking in user space does not know is judged packet by packet.
	l.add(Conntrack, 50, match(isIP), goTo(EgressPolicy0))
	l.add(Conntrack, 50, match(isIPv6), goTo(EgressPolicy0))

	l.drop(ConntrackState, 100, match(of.State(of.StateInv|of.StateTrk, 0)), driver.DropInvalid)
	for _, eth := range []of.Term{isIP, isIPv6} {
		// A reset answers a connection, it never begins one.
		l.drop(ConntrackState, 90, match(eth, isProto(6), of.State(of.StateNew|of.StateTrk, 0),
			of.Masked(of.TCPFlags, of.Uint(4), of.Uint(4))), driver.DropInvalid)
		// A request is no answer: tracking in user space takes a request within the
		// window for an answer.
		l.drop(ConntrackState, 90, match(eth, isProto(6), of.State(of.StateRpl|of.StateTrk, 0),
			of.Masked(of.TCPFlags, of.Uint(2), of.Uint(0x12))), driver.DropInvalid)
	}
	// ICMP errors of local ports that quotes does not let through; a flow for each
	// family, as quotes has them.
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.drop(ConntrackState, 86, match(eth, origin(fromPort), of.State(of.StateRel|of.StateTrk, 0)), driver.DropInvalid)
	}
	if l.c.Mutation != NoReplyMirror {
		l.add(ConntrackState, 80, match(of.State(of.StateRpl|of.StateTrk, 0)), append(swapSourceAndDestination(), goTo(EgressPolicy0))...)
	}
	// Only tracking in user space passes later fragments on. Rules by port do not
	// match them; commitFlows lets them go where their first fragment may go.
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(ConntrackState, 84, match(eth, isLater, of.State(of.StateTrk, 0)), goTo(ConntrackCommit))
	}
	l.add(ConntrackState, 10, match(of.State(of.StateTrk, 0)), goTo(EgressPolicy0))
	l.drop(ConntrackState, 0, nil, driver.DropInvalid)
}

// swapSourceAndDestination swaps what is known of source and destination.
func swapSourceAndDestination() []of.Action {
	swap := func(a, b of.Field) []of.Action {
		return []of.Action{of.Move{From: a, To: regScratch}, of.Move{From: b, To: a}, of.Move{From: regScratch, To: b}}
	}
	return append(swap(regSrc, regDst), swap(regEgressSet, regIngressSet)...)
}

// allowICMPErrors lets a port's ICMP errors through that are about packets to addr, one of
// the port's own addresses: a container is no router. Others begin connections to
// addr at the address asked, as which tracking has translated the error's source by
// now, where the two differ. IPv4's source is not matched: the port has only one.
func (l *list) allowICMPErrors(in of.Term, addr, asked netip.Addr) {
	src, dst, from := of.CtNwSrc, of.CtNwDst, match(isIP, in)
	if addr.Is6() {
		src, dst, from = of.CtIPv6Src, of.CtIPv6Dst, fromAddr(asked, in)
	}
	with := func(more ...of.Term) of.Match { return match(append(slices.Clone(from), more...)...) }
	l.add(ConntrackState, 88, with(of.State(of.StateRel|of.StateRpl|of.StateTrk, 0), of.EqAddr(dst, asked)), append(swapSourceAndDestination(), goTo(EgressPolicy0))...)
	if addr == asked || addr.Is6() { // by egress it is translated by now
		l.add(ConntrackState, 88, with(of.State(of.StateRel|of.StateTrk, of.StateRpl), of.EqAddr(src, addr)), goTo(EgressPolicy0))
	}
}

// tracked are the protocols that connection tracking knows.
func tracked(v6 bool) []model.Protocol {
	if v6 {
		// Of a later fragment the switch sees the fragment header only (44): tracking
		// joins it to its first fragment.
		return []model.Protocol{model.ProtoICMPv6, model.ProtoTCP, model.ProtoUDP, protoFragment}
	}
	return []model.Protocol{model.ProtoICMP, model.ProtoTCP, model.ProtoUDP}
}

// commitFlows remember connections. Tracking in user space keeps a fragment here,
// as it does in Conntrack, until all fragments of its datagram have come here: so later
// fragments go on only if policy has let the first one through.
func (l baseFlows) commitFlows() {
	for _, eth := range []of.Term{isIP, isIPv6} {
		l.add(ConntrackCommit, 8, match(eth, isFragment, of.State(of.StateTrk, of.StateNew)),
			of.CT{ZoneField: regDomain, Recirc: true, Table: uint8(Output)})
		fresh := match(eth, of.State(of.StateNew|of.StateTrk, 0))
		l.add(ConntrackCommit, 11, match(append(fresh, of.Eq(of.CtMark, 0))...), commitMarked(markNoService))
		l.add(ConntrackCommit, 10, fresh, of.CT{Commit: true, ZoneField: regDomain, Recirc: true, Table: uint8(Output)})
	}
	l.add(ConntrackCommit, 0, nil, goTo(Output))
}
