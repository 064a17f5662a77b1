package pipeline

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// LocalPort is a port of the desired state with the number that the switch gave it.
type LocalPort struct {
	*desired.Port
	Number uint32
}

// Network returns the flows of a network, local being its ports on this host.
func Network(c Config, n *desired.Network, local []LocalPort) []of.Flow {
	l := networkFlows{&list{cookie: cookie(KindNetwork, uint32(n.ID))}, c, n}
	enter := enterOf(n)
	if n.Joined != 0 {
		l.routerNetwork()
		enter = CrossNetwork
	}
	switch {
	case n.Encap == model.EncapVXLAN && c.Tunnel != 0:
		l.add(Classify, 100, match(of.Eq(of.InPort, c.Tunnel), of.Eq(of.TunID, n.Tag), untagged),
			of.Set(regDomain, n.Domain()), of.Set(regNetwork, n.ID), of.Set(regOrigin, fromTunnel), goTo(enter))
	case n.Encap == model.EncapVLAN && c.Uplink != 0:
		tag := of.SetField{Field: of.VlanVID, Value: of.Uint(0x1000 | n.Tag)}
		l.add(Classify, 100, match(of.Eq(of.InPort, c.Uplink), of.Eq(of.VlanVID, 0x1000|n.Tag)),
			of.PopVLAN{}, of.Set(regDomain, n.Domain()), of.Set(regNetwork, n.ID), of.Set(regOrigin, fromUplink), goTo(enter))
		l.add(ReplyToPort, 10, match(network(n.ID), origin(fromUplink)), of.PushVLAN{}, tag, of.Output{Port: of.PortInPort})
		for _, s := range []Stage{Destination, MACLookup} {
			l.add(s, 10, match(network(n.ID), origin(fromPort)), of.Set(regPort, c.Uplink), goTo(UplinkIdentity))
		}
		l.add(Output, 100, match(network(n.ID), of.Eq(regPort, c.Uplink)), of.PushVLAN{}, tag, of.Output{Port: c.Uplink})
		if c.ArpMode != model.ArpFlood {
			// Questions that nothing answers here may be for the outside.
			for _, m := range []of.Match{match(isARP), nd(ndRouterSolicit), nd(ndNeighborSolicit), nd(ndNeighborAdvert)} {
				l.add(ARPResponder, 30, match(append(m, broadcast, network(n.ID), origin(fromPort))...),
					of.Set(regPort, c.Uplink), goTo(Output))
			}
		}
	}
	if c.ArpMode == model.ArpFlood {
		l.floodFlows(local)
	}
	l.multicastNetwork()
	l.hostNetwork()
	l.serviceNetwork()
	l.externalClientNetwork()
	l.routedNetwork()
	return l.flows
}

// chunks is how many flows the copies are spread over, at most: a flow must fit
// a message of 64 KB, and a change of one port should rewrite little.
const chunks = 32

// lastChunk is where a chain of copies ends.
const lastChunk = ^uint32(serviceBit)

// floodFlows chains the copies of a broadcast frame: local ports, then, for frames of
// local ports, the outside.
func (l networkFlows) floodFlows(local []LocalPort) {
	l.copies(Flood, match(network(l.n.ID)), local, func(p LocalPort) model.Identity { return p.Identity })
	if acts := copiesToOtherHosts(l.c, l.n); acts != nil {
		l.add(Flood, 100, match(network(l.n.ID), of.Eq(regChunk, lastChunk), origin(fromPort)), acts...)
	}
}

// copies chains the copies of frames that match m for local ports, in chunks by name.
// Every copy goes through tracking and policy of its own, who being its receiver to the
// sender's policy.
func (l *list) copies(s Stage, m of.Match, local []LocalPort, who func(LocalPort) model.Identity) {
	chunk := func(p LocalPort) uint32 {
		h := fnv.New32a()
		h.Write([]byte(p.IfName))
		return h.Sum32()%chunks + 1
	}
	local = slices.SortedFunc(slices.Values(local), func(a, b LocalPort) int {
		return cmp.Or(cmp.Compare(chunk(a), chunk(b)), cmp.Compare(a.IfName, b.IfName))
	})
	at := uint32(0)
	var acts []of.Action
	flush := func(next uint32) {
		l.add(s, 100, match(append(slices.Clone(m), of.Eq(regChunk, at))...), append(acts, of.Set(regChunk, next), goTo(s))...)
		at, acts = next, nil
	}
	for _, p := range local {
		if c := chunk(p); c != at {
			flush(c)
		}
		acts = append(acts, of.Set(regDst, who(p)), of.Set(regIngressSet, p.Policies), of.Set(regPort, p.Number), goTo(Conntrack))
	}
	flush(lastChunk)
}

func tunnelFrom(vtep netip.Addr) of.Term {
	if vtep.Is4() {
		return of.EqAddr(of.TunSrc, vtep)
	}
	return of.EqAddr(of.TunIPv6Src, vtep)
}

func tunnelTo(vtep netip.Addr) of.Action {
	if vtep.Is4() {
		return of.SetField{Field: of.TunDst, Value: of.Addr(vtep)}
	}
	return of.SetField{Field: of.TunIPv6Dst, Value: of.Addr(vtep)}
}

// addresses returns what an endpoint may call its own.
func addresses(mac model.MAC, v4, v6 netip.Addr) []netip.Addr {
	var out []netip.Addr
	if v4.Is4() {
		out = append(out, v4)
	}
	if v6.Is6() {
		out = append(out, v6)
	}
	if ll := mac.LinkLocal(); ll != v6 {
		out = append(out, ll)
	}
	return out
}

// addressScope matches packets where an endpoint's address is known: in its network's
// domain, or, if it is a link-local address, in its network alone.
func addressScope(n *desired.Network, a netip.Addr) of.Term {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return network(n.ID)
	}
	return domain(n)
}

// Port returns the flows of a local port on network n.
func Port(c Config, n *desired.Network, p LocalPort) []of.Flow {
	l := networkFlows{&list{cookie: cookie(KindPort, p.Number)}, c, n}
	in, mac := of.Eq(of.InPort, p.Number), of.EqMAC(of.EthSrc, p.MAC)
	own := addresses(p.MAC, p.IPv4, p.IPv6)
	vlan := n.Encap == model.EncapVLAN
	classify := []of.Action{
		of.Set(regDomain, n.Domain()), of.Set(regNetwork, n.ID), of.Set(regSrc, p.Identity), of.Set(regEgressSet, p.Policies), of.Set(regOrigin, fromPort),
	}
	if way := l.hostPort(p); way != 0 {
		classify = append(classify, of.Set(regFlags, way))
	}
	l.add(Classify, 100, match(in, untagged), append(classify, goTo(PortSecurity))...)
	sha := of.EqMAC(of.ArpSha, p.MAC)
	if p.IPv4.Is4() {
		l.add(PortSecurity, 100, match(in, mac, isARP, sha, of.EqAddr(of.ArpSpa, p.IPv4)), goTo(ARPResponder))
	}
	l.add(PortSecurity, 100, match(in, mac, isARP, sha, of.Eq(of.ArpSpa, 0), of.Eq(of.ArpOp, 1)), goTo(ARPResponder))
	for _, a := range own {
		l.allowICMPErrors(in, a, a)
		if a.Is4() {
			l.add(PortSecurity, 100, fromAddr(a, in, mac), goTo(Destination))
			continue
		}
		l.add(PortSecurity, 100, fromAddr(a, in, mac), goTo(PortSecurityND))
		for _, link := range [][6]byte{p.MAC, noMAC} {
			l.add(PortSecurityND, 100, nd(ndNeighborAdvert, in, of.EqAddr(of.NdTarget, a), of.EqMAC(of.NdTll, link)), goTo(ARPResponder))
		}
	}
	for _, link := range [][6]byte{p.MAC, noMAC} {
		l.add(PortSecurityND, 100, nd(ndNeighborSolicit, in, of.EqMAC(of.NdSll, link)), goTo(ARPResponder))
	}
	unspecified := of.EqAddr(of.IPv6Src, netip.IPv6Unspecified())
	l.add(PortSecurity, 100, nd(ndNeighborSolicit, in, mac, unspecified, of.EqMAC(of.NdSll, noMAC)), goTo(ARPResponder))
	l.add(PortSecurity, 100, nd(ndRouterSolicit, in, mac, unspecified), goTo(ARPResponder))

	if vlan && c.Uplink != 0 {
		// No machine beyond the uplink is one of our own ports.
		l.drop(SourceIdentity, 200, match(network(n.ID), origin(fromUplink), mac), driver.DropSpoof)
		if p.IPv4.Is4() {
			l.drop(SourceIdentity, 200, match(network(n.ID), origin(fromUplink), isARP, of.EqAddr(of.ArpSpa, p.IPv4)), driver.DropSpoof)
		}
		for _, a := range own {
			l.drop(SourceIdentity, 200, fromAddr(a, addressScope(n, a), origin(fromUplink)), driver.DropSpoof)
			l.addressFlow(a, p.Identity)
		}
	}
	if c.ArpMode != model.ArpFlood {
		if vlan {
			addressReplies(l.list, c, p.MAC, own, network(n.ID)) // to containers and to the outside
		} else {
			addressReplies(l.list, c, p.MAC, own, network(n.ID), origin(fromPort))
		}
		l.ownAddressRequests(in, own)
	}
	l.multicastPort(p)
	there := []of.Action{of.Set(regDst, p.Identity), of.Set(regIngressSet, p.Policies), of.Set(regPort, p.Number), goTo(Conntrack)}
	l.deliver([]of.Term{network(n.ID), of.EqMAC(of.EthDst, p.MAC)}, own, there)
	l.backend(p.MAC, p.IPv4, p.IPv6)
	l.notExternal(p.IPv4, p.IPv6)
	l.externalRequests(p.MAC, there, p.IPv4, p.IPv6)
	l.toRouted(p.MAC, there, addresses(p.MAC, p.IPv4, p.IPv6))
	l.hairpin(p)
	if n.Joined != 0 {
		l.nextHop(p.MAC, p.IPv4, p.IPv6, append([]of.Action{of.SetField{Field: of.EthSrc, Value: of.MAC(desired.RouterMAC)}}, there...))
	}
	return l.flows
}

// deliver adds the flows that take frames to the MAC of an endpoint: none at
// all when there are no actions. A packet to one of its addresses is taken to its
// MAC alone, and to its MAC no packet to another address: else policy would judge
// one station, and another one would get the packet.
func (l networkFlows) deliver(there []of.Term, own []netip.Addr, acts []of.Action) {
	for _, a := range own {
		l.drop(Destination, 110, toAddr(a, addressScope(l.n, a), unicast), driver.DropUnknownDest)
		if acts != nil {
			l.add(Destination, 120, toAddr(a, there...), acts...)
		}
	}
	if acts == nil {
		return
	}
	l.add(MACLookup, 100, match(there...), acts...)
	if l.n.Encap == model.EncapVLAN { // otherwise it has no receiver
		l.drop(Destination, 100, match(there...), driver.DropUnknownDest)
	}
}

// ownAddressRequests handle a port's requests for its own address, which are announcements or
// duplicate address detection: they get no answer.
func (l networkFlows) ownAddressRequests(in of.Term, own []netip.Addr) {
	for _, a := range own {
		m := match(isARP, in, of.Eq(of.ArpOp, 1))
		if a.Is4() {
			m = match(append(m, of.EqAddr(of.ArpTpa, a))...)
		} else {
			m = nd(ndNeighborSolicit, in, of.EqAddr(of.NdTarget, a))
		}
		if l.n.Encap == model.EncapVLAN && l.c.Uplink != 0 {
			l.add(ARPResponder, 210, m, of.Set(regPort, l.c.Uplink), goTo(Output))
		} else {
			l.drop(ARPResponder, 210, m, driver.DropUnknownDest)
		}
	}
}

// addressReplies make replies to questions for an endpoint's addresses out of the
// questions themselves.
func addressReplies(l *list, c Config, mac model.MAC, own []netip.Addr, where ...of.Term) {
	toMAC := of.SetField{Field: of.EthSrc, Value: of.MAC(mac)}
	for _, a := range own {
		if a.Is4() {
			l.answerARP(ARPResponder, 200, match(append(where, of.EqAddr(of.ArpTpa, a))...), mac, a, goTo(ReplyToPort))
			continue
		}
		if c.Relay {
			relay(l, mac, a, where)
			continue
		}
		answer := func(priority uint16, dst of.Action, flags uint32, more ...of.Term) {
			terms := append([]of.Term{of.EqAddr(of.NdTarget, a)}, where...)
			l.add(ARPResponder, priority, nd(ndNeighborSolicit, append(terms, more...)...),
				of.Move{From: of.EthSrc, To: of.EthDst}, toMAC,
				dst, of.SetField{Field: of.IPv6Src, Value: of.Addr(a)},
				of.Set(of.ICMPv6Type, ndNeighborAdvert),
				of.Set(of.NdOptionsType, 2), // target link-layer address, in place of the source's
				of.Set(of.NdReserved, flags),
				goTo(NDAdvertise))
		}
		// RFC 4861 section 4.4: solicited and override; a question without a sender
		// is answered to all nodes, without solicited.
		answer(200, of.Move{From: of.IPv6Src, To: of.IPv6Dst}, 0x60000000)
		answer(205, of.SetField{Field: of.IPv6Dst, Value: of.Addr(allNodes)}, 0x20000000,
			of.EqAddr(of.IPv6Src, netip.IPv6Unspecified()))
	}
}

// relay sends a question for an endpoint's IPv6 address to the endpoint itself,
// whose own stack answers. The kernel's datapath cannot set the fields that
// make an advertisement of a solicitation, and Open vSwitch refuses such flows
// there. The destination address stays the group's: only then is the answer
// sent with the link-layer address in it (RFC 4861 section 7.2.4).
func relay(l *list, mac model.MAC, a netip.Addr, where []of.Term) {
	terms := append([]of.Term{of.EqAddr(of.NdTarget, a)}, where...)
	l.add(ARPResponder, 200, nd(ndNeighborSolicit, terms...), of.SetField{Field: of.EthDst, Value: of.MAC(mac)}, goTo(Destination))
}

// answerARP makes requests that match m into replies of mac and a.
func (l *list) answerARP(s Stage, priority uint16, m of.Match, mac model.MAC, a netip.Addr, send of.Action) {
	l.add(s, priority, match(append(m, isARP, of.Eq(of.ArpOp, 1))...),
		of.Move{From: of.EthSrc, To: of.EthDst}, of.SetField{Field: of.EthSrc, Value: of.MAC(mac)},
		of.Set(of.ArpOp, 2),
		of.Move{From: of.ArpSha, To: of.ArpTha}, of.SetField{Field: of.ArpSha, Value: of.MAC(mac)},
		of.Move{From: of.ArpSpa, To: of.ArpTpa}, of.SetField{Field: of.ArpSpa, Value: of.Addr(a)},
		send)
}

// addressFlow tells whose an address is when a frame for it leaves by the uplink.
func (l networkFlows) addressFlow(a netip.Addr, id model.Identity) {
	l.add(UplinkIdentity, 100, toAddr(a, addressScope(l.n, a)), of.Set(regDst, id), goTo(Conntrack))
}

// Remote returns the flows of an endpoint on another host. n gives only its
// encapsulation, tag, domain and subnets.
func Remote(c Config, n *desired.Network, r *desired.Remote) []of.Flow {
	l := networkFlows{&list{cookie: cookie(KindRemote, uint32(n.ID))}, c, n}
	own := addresses(r.MAC, r.IPv4, r.IPv6)
	vlan := n.Encap == model.EncapVLAN
	from := fromTunnel
	if vlan {
		from = fromUplink
	}
	if port := map[bool]uint32{true: c.Uplink, false: c.Tunnel}[vlan]; port == 0 {
		own = nil
	}
	known := r.Identity != model.IdentityUnknown
	sender := []of.Term{network(n.ID), origin(from)}
	if !vlan && own != nil && r.VTEP.IsValid() {
		// Only the endpoint's own host is believed when it sends in the endpoint's name.
		mac := of.EqMAC(of.EthSrc, r.MAC)
		sender = append(sender, mac)
		l.add(TunnelSource, 100, match(network(n.ID), mac, tunnelFrom(r.VTEP)), goTo(SourceIdentity))
	}
	for _, a := range own {
		if known {
			next := Destination
			if a.Is6() {
				next = ARPResponder
			}
			l.add(SourceIdentity, 100, fromAddr(a, sender...), of.Set(regSrc, r.Identity), goTo(next))
		}
		if vlan {
			l.addressFlow(a, r.Identity)
		} else if known && a.Is4() {
			l.add(SourceIdentity, 100, match(append(sender, isARP, of.EqAddr(of.ArpSpa, a))...), goTo(ARPResponder))
		}
	}
	if c.ArpMode != model.ArpFlood {
		addressReplies(l.list, c, r.MAC, addresses(r.MAC, r.IPv4, r.IPv6), network(n.ID), origin(fromPort))
	}
	there := []of.Term{network(n.ID), origin(fromPort), of.EqMAC(of.EthDst, r.MAC)}
	var acts []of.Action
	switch {
	case vlan && c.Uplink != 0:
		acts = []of.Action{of.Set(regDst, r.Identity), of.Set(regPort, c.Uplink), goTo(Conntrack)}
	case !vlan && c.Tunnel != 0 && r.VTEP.IsValid():
		acts = []of.Action{of.Set(regDst, r.Identity), of.Set(of.TunID, n.Tag), tunnelTo(r.VTEP), of.Set(regPort, c.Tunnel), goTo(Conntrack)}
	}
	l.deliver(there, addresses(r.MAC, r.IPv4, r.IPv6), acts)
	l.backend(r.MAC, r.IPv4, r.IPv6)
	l.notExternal(r.IPv4, r.IPv6)
	if !vlan {
		l.externalRequests(r.MAC, acts, r.IPv4, r.IPv6)
		l.toRouted(r.MAC, acts, addresses(r.MAC, r.IPv4, r.IPv6), allHosts)
		l.remoteBackendReplies(r)
	}
	if n.Joined != 0 {
		l.crossNetwork(r)
		if acts != nil {
			l.nextHop(r.MAC, r.IPv4, r.IPv6, acts)
		}
	}
	return l.flows
}
