package pipeline

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Multicast (docs/adr/0029-multicast.md). Each group with members here has a flow that
// copies its packets to them; the network's own flow has the copies for other hosts.
// Messages of IGMP and MLD go to the driver, and on VLAN networks to the uplink, and
// nowhere else.

const (
	// MeterFabric bounds what the physical network says of memberships.
	MeterFabric = 4
	// Each of the shares of ports, as audit events have them, has a meter for reports of
	// memberships.
	firstMembership = 512
	// MembershipRate is how many reports of a share a second are passed on, and of the
	// physical network.
	MembershipRate = 50
	// membershipLen is how much of a frame the driver gets: all.
	membershipLen = 1520
)

// MembershipMeters are the meters that flows name by which the driver hears of memberships.
func MembershipMeters() []uint32 {
	out := []uint32{MeterFabric}
	for i := range uint32(auditMeterCount) {
		out = append(out, firstMembership+i)
	}
	return out
}

// OfPort reports whether a meter bounds ports' messages of memberships.
func OfPort(meter uint32) bool {
	return meter >= firstMembership && meter < firstMembership+auditMeterCount
}

// IsMembership reports whether a packet that a flow has sent up is a message about
// memberships.
func IsMembership(table uint8, cookie uint64) bool {
	kind, _, ours := KindOf(cookie)
	return ours && (kind == KindPort || kind == KindBase) && cookie&AnswerBit != 0 && Stage(table) == Destination
}

const protoIGMP = 2

// Types of MLD (RFC 2710, RFC 3810).
const (
	mldQuery   = 130
	mldReport1 = 131
	mldDone1   = 132
	mldReport2 = 143
)

// groups are the destinations that endpoints join, and those among them that they do
// not: desired.IsMulticastMember.
func groups() (all, link []of.Match) {
	v6 := func(a, mask string) of.Match {
		return match(broadcast, isIPv6, of.Masked(of.IPv6Dst, of.Addr(netip.MustParseAddr(a)), of.Addr(netip.MustParseAddr(mask))))
	}
	v4 := func(a, mask string) of.Match {
		return match(broadcast, isIP, of.Masked(of.NwDst, of.Addr(netip.MustParseAddr(a)), of.Addr(netip.MustParseAddr(mask))))
	}
	all = []of.Match{v4("224.0.0.0", "240.0.0.0"), v6("ff00::", "ff00::")}
	link = []of.Match{v4("224.0.0.0", "255.255.255.0"), v6("ff00::", "ff0f::"), v6("ff01::", "ff0f::"), v6("ff02::", "ff0f::")}
	return all, link
}

func (l baseFlows) multicastBase() {
	all, link := groups()
	for _, m := range all {
		l.add(Destination, 55, m, goTo(MulticastGroups))
	}
	for _, m := range link {
		if l.c.ArpMode == model.ArpFlood {
			l.add(Destination, 57, m, goTo(Flood))
		} else {
			l.drop(Destination, 57, m, driver.DropUnknownDest)
		}
	}
	l.drop(MulticastGroups, 0, nil, driver.DropUnknownDest)
	l.add(MulticastGroups, 5, match(of.Eq(regChunk, lastChunk)), of.Set(regChunk, 0)) // the end, and no drop: all that hear it have their copies

	igmp := match(broadcast, isIP, isProto(protoIGMP))
	l.drop(Destination, 128, igmp, driver.DropUnknownDest)
	for _, typ := range []int{mldQuery, mldReport1, mldDone1, mldReport2} {
		l.drop(Destination, 128, nd(typ, broadcast), driver.DropUnknownDest)
	}
	l.drop(Destination, 129, nd(mldQuery, broadcast, origin(fromPort)), driver.DropSpoof)
	if l.c.Answers && l.c.Uplink != 0 { // the fabric's questions
		for _, m := range []of.Match{match(append(igmp, origin(fromUplink))...), nd(mldQuery, broadcast, origin(fromUplink))} {
			l.add(Destination, 129, m, of.Meter{ID: MeterFabric}, of.Controller{MaxLen: membershipLen})
			l.flows[len(l.flows)-1].Cookie |= AnswerBit
		}
	}
}

// multicastPort has a port's messages about memberships heard.
func (l networkFlows) multicastPort(p LocalPort) {
	if !l.c.Answers {
		return
	}
	in := of.Eq(of.InPort, p.Number)
	tell := []of.Action{of.Meter{ID: firstMembership + p.Number%auditMeterCount}, of.Controller{MaxLen: membershipLen}}
	hear := func(m of.Match, then ...of.Action) {
		l.add(Destination, 130, m, slices.Concat(tell, then)...)
		l.flows[len(l.flows)-1].Cookie |= AnswerBit
	}
	// No flow sees what IGMP says, a report or a question: the driver does, and sends on
	// to the uplink what may go there.
	hear(match(in, broadcast, isIP, isProto(protoIGMP)))
	var on []of.Action
	if l.n.Encap == model.EncapVLAN && l.c.Uplink != 0 {
		on = []of.Action{of.Set(regPort, l.c.Uplink), goTo(Output)}
	}
	for _, typ := range []int{mldReport1, mldDone1, mldReport2} {
		hear(nd(typ, in, broadcast), on...)
	}
}

// multicastNetwork has what is sent to any group go to other hosts.
func (l networkFlows) multicastNetwork() {
	if acts := copiesToOtherHosts(l.c, l.n); acts != nil {
		for _, at := range []uint32{0, lastChunk} {
			l.add(MulticastGroups, 10, match(network(l.n.ID), of.Eq(regChunk, at), origin(fromPort)), acts...)
		}
	}
	if l.n.Encap == model.EncapVXLAN && l.c.Tunnel != 0 && len(l.n.VTEPs) > 0 {
		acts := []of.Action{of.Set(of.TunID, l.n.Tag)}
		for _, v := range l.n.VTEPs {
			acts = append(acts, tunnelTo(v), of.Output{Port: l.c.Tunnel})
		}
		l.add(Output, 100, match(network(l.n.ID), of.Eq(regPort, uint32(toOtherHosts))), acts...)
	}
}

// copiesToOtherHosts sends a copy to all other hosts of a network, nil = there are none.
func copiesToOtherHosts(c Config, n *desired.Network) []of.Action {
	switch {
	case n.Encap == model.EncapVLAN && c.Uplink != 0:
		return []of.Action{of.Set(regIngressSet, 0), of.Set(regPort, c.Uplink), goTo(UplinkIdentity)}
	case n.Encap == model.EncapVXLAN && c.Tunnel != 0 && len(n.VTEPs) > 0:
		return []of.Action{of.Set(regDst, model.IdentityUnknown), of.Set(regIngressSet, 0), of.Set(regPort, uint32(toOtherHosts)), goTo(Conntrack)}
	}
	return nil
}

// Group returns the flows of a group with members on this host.
func Group(n *desired.Network, group netip.Addr, members []LocalPort) []of.Flow {
	if len(members) == 0 {
		return nil
	}
	l := &list{cookie: cookie(KindNetwork, uint32(n.ID))}
	nobody := model.IdentityUnknown // has the group's address: rules for endpoints do not name it
	if n.Encap == model.EncapVLAN {
		nobody = model.IdentityExternal
	}
	l.copies(MulticastGroups, match(append(toAddr(group), network(n.ID))...), members, func(LocalPort) model.Identity { return nobody })
	return l.flows
}
