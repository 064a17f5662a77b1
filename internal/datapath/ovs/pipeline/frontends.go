package pipeline

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Frontends: ports of addresses that services share (docs/design/services.md). Such an
// address, a shared VIP, has a number in regService, and Faced replaces it by the number of
// the service that has the packet's port there. All nodes' addresses of a family and domain
// are one shared VIP, so nodes and node ports add up and do not multiply. A port at a
// single one of them belongs to that VIP too, and comes before theirs. Packets that show no
// ports before they are tracked, fragments and ICMP errors, have the VIP's number until
// then.

// sharedVIPBits mark the numbers of shared VIPs, which no service has.
const sharedVIPBits = 0xfff << 20

var isSharedVIP = of.Masked(regService, of.Uint(uint32(sharedVIPBits)), of.Uint(uint32(sharedVIPBits)))

// frontendChecked in regChunk is of a packet to a node that is no service's.
const frontendChecked = 1

// SharedVIP is an address at which services have frontends.
type SharedVIP struct {
	Number uint32
	Domain desired.Domain
	Zone   uint16     // of the domain's translations
	Addr   netip.Addr // unspecified = all nodes' of the family
	// Open is the network of the service that leads clients outside here, 0 = none does. Ports of
	// services of other domains there have OutsideFlows.
	Open model.NetworkID
	// Datagrams is the service with the only frontend of UDP here, 0 = there is none, or
	// several; Inside: it is not exposed, or not only services of this domain are.
	Datagrams uint32
	Inside    bool
}

// SharedVIPNumber is the number that a shared VIP would like to have, and NextSharedVIP another one.
func SharedVIPNumber(d desired.Domain, a netip.Addr) uint32 {
	return NumberOf(fmt.Sprint(a, " ", d)) | sharedVIPBits
}

// NextSharedVIP is another number for a shared VIP when one is taken.
func NextSharedVIP(n uint32) uint32 { return (n + 1) | sharedVIPBits }

// Frontend is a frontend of a service, and the number of its shared VIP.
type Frontend struct {
	desired.Frontend
	VIP  uint32
	Node bool // it is at a node's address by itself, and the shared VIP is all nodes'
}

func (f Frontend) isNodePort() bool { return f.Addr.IsUnspecified() }

// frontendBase adds what frontends need whatever services there are.
func (l baseFlows) frontendBase() {
	seen := of.State(of.StateTrk, 0)
	l.add(SharedFrontends, 5, match(seen), goTo(SelectBackend)) // which refuses it
	l.add(SharedFrontends, 0, nil, goTo(ServiceSource))
	if l.c.exposesServices() {
		l.add(ServiceSource, 310, match(origin(fromExternalLocal)), goTo(ExternalSource))
	}
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		l.add(ServiceState, 96, match(eth, isSharedVIP, of.State(of.StateNew|of.StateTrk, 0)), goTo(SharedFrontends))
	}
}

// SharedVIPFlows returns the flows of a shared VIP but those of the services' ports.
func SharedVIPFlows(c Config, s SharedVIP) []of.Flow {
	l := &list{cookie: cookie(KindService, 0)}
	if s.Addr.IsUnspecified() {
		s.nodes(l, c)
		return l.flows
	}
	here := []of.Term{inDomain(s.Domain), origin(fromPort)}
	ownsAddress(l, c, s.Addr, here, of.Set(regService, s.Number), of.Set(regZone, s.Zone), goTo(SharedFrontends))
	if c.clientsByTunnel() || c.exposesServices() {
		l.drop(ExternalSource, 100, fromAddr(s.Addr, inDomain(s.Domain)), driver.DropSpoof)
	}
	s.open(l, c, 109, s.Addr)
	if c.Pieces && s.Datagrams != 0 {
		// Later fragments show no port, so all go to who has the only one.
		eth, _, _ := ethOf(s.Addr.Is6())
		m := []of.Term{of.Eq(regService, s.Number), eth, isFragment, of.State(of.StateTrk, 0)}
		if s.Inside {
			m = append(m, origin(fromPort))
		}
		protocols := []int{int(model.ProtoUDP)}
		if s.Addr.Is6() {
			protocols = append(protocols, protoFragment)
		}
		for _, p := range protocols {
			l.add(SharedFrontends, 50, match(append(slices.Clone(m), isProto(p))...), of.Set(regService, s.Datagrams), of.Set(regCounted, backendChosen), goTo(SessionAffinity), goTo(SelectBackend))
		}
	}
	return l.flows
}

// open leads what the host's stack sends to an address to the shared VIP.
func (s SharedVIP) open(l *list, c Config, priority uint16, a netip.Addr) {
	if s.Open != 0 && c.exposesServices() {
		l.add(Classify, priority, toAddr(a, of.Eq(of.InPort, c.Host)), routerToRouter(s.enter(of.Set(regOrigin, fromExternalLocal), goTo(SharedFrontends))...)...)
	}
}

// enter has a packet of a client outside be one to the shared VIP.
func (s SharedVIP) enter(then ...of.Action) []of.Action {
	return append([]of.Action{of.Set(regDomain, s.Domain), of.Set(regNetwork, s.Open), of.Set(regService, s.Number), of.Set(regZone, s.Zone)}, then...)
}

// OutsidePort is a port at which clients outside reach a service of another domain than the
// one that its address leads them to.
type OutsidePort struct {
	Protocol model.Protocol
	Port     uint16
	Node     netip.Addr // the node's address that has it by itself; invalid = none
	To       SharedVIP  // of the service's domain; Open is the service's network
}

// OutsideFlows returns the flows by which packets of clients outside go on from one shared VIP
// to shared VIPs of other domains: by the port, once it shows. Fragments are put together in the
// first one's zone. An error goes through the zones of all until one knows its connection.
func OutsideFlows(c Config, s SharedVIP, ports []OutsidePort) []of.Flow {
	l := &list{cookie: cookie(KindService, 0)}
	if !c.exposesServices() {
		return nil
	}
	eth, _, dst := ethOf(s.Addr.Is6())
	icmp := isProto(1)
	if s.Addr.Is6() {
		icmp = isProto(58)
	}
	last, tried := s, map[uint32]bool{}
	for _, p := range ports {
		m, priority := []of.Term{of.Eq(regService, s.Number), eth, origin(fromExternalLocal), notFragment, isProto(int(p.Protocol)), of.Eq(dstPort(p.Protocol), p.Port)}, uint16(103)
		if p.Node.IsValid() {
			m, priority = append(m, of.EqAddr(dst, p.Node)), 106
		}
		l.add(SharedFrontends, priority, match(m...), p.To.enter(goTo(SharedFrontends))...)
		if !tried[p.To.Number] {
			l.add(ServiceState, 217, match(of.Eq(regService, last.Number), eth, icmp, origin(fromExternalLocal), of.State(of.StateInv|of.StateTrk, 0)), p.To.enter(goTo(ServiceSource))...)
			last, tried[p.To.Number] = p.To, true
		}
	}
	return l.flows
}

// nodes adds that what has a node's address and is no service's goes where it would
// without services: at once, or once tracking has said that it is of no translation.
func (s SharedVIP) nodes(l *list, c Config) {
	eth, _, _ := ethOf(s.Addr.Is6())
	here := []of.Term{of.Eq(regService, s.Number), eth}
	miss := func(stage Stage, priority uint16, more ...of.Term) {
		m := append(slices.Clone(here), more...)
		l.add(stage, priority, match(append(m, origin(fromPort))...), of.Set(regChunk, frontendChecked), goTo(Destination))
		if c.exposesServices() {
			l.drop(stage, priority, match(append(m, origin(fromExternalLocal))...), driver.DropNetwork)
		}
	}
	untracked := of.State(0, of.StateTrk)
	piece := append(slices.Clone(here), isFragment, untracked)
	if s.Addr.Is6() { // later ones do not show their protocol, and tracking waits for the first
		l.add(SharedFrontends, 50, match(piece...), goTo(ServiceSource))
		l.add(ServiceConntrack, 110, match(append(slices.Clone(here), isFragment)...), serviceConntrack(ServiceState))
	} else {
		for _, p := range portProtocols {
			l.add(SharedFrontends, 50, match(append(slices.Clone(piece), isProto(int(p)))...), goTo(ServiceSource))
		}
	}
	icmp, icmpType := isProto(1), of.ICMPType
	if s.Addr.Is6() {
		icmp, icmpType = isProto(58), of.ICMPv6Type
	}
	for _, typ := range icmpErrors[s.Addr.Is6()] {
		m := append(slices.Clone(here), untracked, icmp, of.Eq(icmpType, typ))
		l.add(SharedFrontends, 50, match(m...), goTo(ServiceSource))
		l.add(SharedFrontends, 51, match(append(slices.Clone(m), origin(fromPort))...), of.CT{ZoneField: regZone, Recirc: true, Table: uint8(SharedFrontends)})
	}
	// A client's error is translated. A backend's one, for a client at the node's address, is not yet.
	l.add(SharedFrontends, 50, match(append(slices.Clone(here), icmp, origin(fromPort), of.State(of.StateRel|of.StateTrk, of.StateRpl|of.StateInv))...), goTo(ServiceSource))
	miss(SharedFrontends, 10)
	for _, priority := range []uint16{1, 250} { // under and over what lets pass
		m := here
		if priority > 1 {
			m = append(slices.Clone(here), of.Eq(regSrc, model.IdentityUnknown))
		}
		l.add(ServiceSource, priority, match(append(m, origin(fromPort))...), of.Set(regChunk, frontendChecked), goTo(Destination))
	}
	miss(ServiceState, 216, of.State(of.StateInv|of.StateTrk, 0))
	l.add(ServiceState, 215, match(append(slices.Clone(here), of.State(of.StateNew|of.StateTrk, 0))...), goTo(SharedFrontends))
}

// NodeFrontendFlows returns the flows for one node's address, s being the nodes' shared VIP.
func NodeFrontendFlows(c Config, s SharedVIP, a netip.Addr) []of.Flow {
	l := &list{cookie: cookie(KindService, 0)}
	l.add(Destination, 204, toAddr(a, inDomain(s.Domain), origin(fromPort), of.EqMAC(of.EthDst, desired.RouterMAC), of.Eq(regChunk, 0)),
		of.Set(regService, s.Number), of.Set(regZone, s.Zone), goTo(SharedFrontends))
	s.open(l, c, 108, a)
	return l.flows
}

// ownsAddress makes an address the services' in a domain: requests for it get the router's
// MAC, and only frames to that MAC go there.
func ownsAddress(l *list, c Config, a netip.Addr, here []of.Term, there ...of.Action) {
	if a.Is6() {
		l.answersForRouter(c, []netip.Addr{a}, here...)
	} else {
		l.answerARP(ARPResponder, 220, match(append(here, of.EqAddr(of.ArpTpa, a))...), desired.RouterMAC, a, goTo(ReplyToPort))
	}
	l.drop(Destination, 205, toAddr(a, append(here, unicast)...), driver.DropUnknownDest)
	l.add(Destination, 206, toAddr(a, append(here, of.EqMAC(of.EthDst, desired.RouterMAC))...), there...)
}

// frontendFlows adds how a service is asked at its frontends of a family, and at its virtual address
// where it has frontends too.
func (s Service) frontendFlows(l *list, c Config, choose *chooser, self []of.Term) []of.Group {
	eth, src, dst := ethOf(choose.v6)
	for _, b := range choose.among(desired.TrafficCluster) {
		l.add(BackendCheck, 100, match(append(slices.Clone(self), of.EqAddr(dst, b.Addr(choose.v6)))...), goTo(Backend))
	}
	s.notAtNodes(l, c, choose.v6, self)
	var groups []of.Group
	for _, f := range s.frontendsOf(choose.v6) {
		proto := []of.Term{isProto(int(f.Protocol)), of.Eq(dstPort(f.Protocol), f.Port)}
		if f.VIP != 0 {
			m, priority := append([]of.Term{of.Eq(regService, f.VIP), eth}, proto...), uint16(100)
			if f.Node {
				m, priority = append(m, of.EqAddr(dst, f.Addr)), 105
			}
			if !s.isExposed(c) {
				if f.Node && c.exposesServices() { // a port of all nodes must not take its place, but another domain's
					l.drop(SharedFrontends, 102, match(append(slices.Clone(m), origin(fromExternalLocal))...), driver.DropNetwork)
				}
				m = append(m, origin(fromPort))
			}
			l.add(SharedFrontends, priority, match(m...), of.Set(regService, s.Number), goTo(ServiceSource))
		}
		who, above := self, uint16(0)
		if !f.isNodePort() {
			who, above = append(slices.Clone(self), of.EqAddr(dst, f.Addr)), 2
		}
		s.clientsOf(l, f, src, append(slices.Clone(who), proto...), above)
		port := frontendMatch{desired.ServicePort{Protocol: f.Protocol, Port: f.Port, Backend: f.Backend}, true, s.isOnlyFrontend(f)}
		for _, x := range s.clientClasses(c, choose, who, f.InternalPolicy, f.ExternalPolicy) {
			own := x.above > 0
			x.above += above
			switch {
			case len(x.all) == 0 && x.unanswered:
				l.drop(SelectBackend, 10+x.above, x.matchPort(port.ServicePort), driver.DropNoProvider)
			case len(x.all) == 0 && own:
				l.refuseBy(c, MeterServices, SelectBackend, 100+x.above, x.matchPort(port.ServicePort), driver.DropNoProvider)
			case len(x.all) == 0:
				l.refuseBy(c, MeterServices, SelectBackend, 10+x.above, x.matchPort(port.ServicePort), driver.DropNoProvider)
			default:
				groups = append(groups, s.port(l, c, x, port, src)...)
			}
		}
	}
	return groups
}

// notAtNodes refuses at the virtual address what only nodes' addresses have: flows of
// nodes' frontends match the port alone.
func (s Service) notAtNodes(l *list, c Config, v6 bool, self []of.Term) {
	_, _, dst := ethOf(v6)
	vip := s.IPv4
	if v6 {
		vip = s.IPv6
	}
	for _, f := range s.ServedFrontends {
		if _, has := s.PortOf(f.Protocol, f.Port); has || !vip.IsValid() || !f.isNodePort() || f.Addr.Is6() != v6 {
			continue
		}
		asks := append(slices.Clone(self), of.EqAddr(dst, vip), isProto(int(f.Protocol)), of.Eq(dstPort(f.Protocol), f.Port))
		l.refuseBy(c, MeterServices, SelectBackend, 110, match(asks...), driver.DropNoProvider)
		l.add(ServiceState, 94, match(append(asks, of.State(of.StateNew|of.StateTrk, 0))...), goTo(SelectBackend))
	}
}

// frontendsOf are the frontends of a family that flows serve, and the ports of the virtual address.
func (s Service) frontendsOf(v6 bool) []Frontend {
	var out []Frontend
	vip := s.IPv4
	if v6 {
		vip = s.IPv6
	}
	for _, p := range countable(s.Service) {
		if vip.IsValid() {
			out = append(out, Frontend{Frontend: desired.Frontend{Addr: vip, Protocol: p.Protocol, Port: p.Port, Backend: p.Backend, InternalPolicy: s.InternalPolicy, ExternalPolicy: s.ExternalPolicy}})
		}
	}
	for _, f := range s.ServedFrontends {
		if f.Addr.Is6() == v6 {
			out = append(out, f)
		}
	}
	return out
}

// clientsOf adds who may begin connections at a frontend that takes clients of some prefixes
// only. Others pass where nodes' frontend with the same port does not take all.
func (s Service) clientsOf(l *list, f Frontend, src of.Field, asks []of.Term, above uint16) {
	nodes := func(o Frontend) bool {
		return o.isNodePort() && len(o.Sources) > 0 && o.Protocol == f.Protocol && o.Port == f.Port && o.Addr.Is6() == f.Addr.Is6()
	}
	if len(f.Sources) == 0 && !slices.ContainsFunc(s.ServedFrontends, nodes) {
		return
	}
	asks = append(asks, of.State(of.StateNew|of.StateTrk, 0))
	goOn := []of.Action{notePort, of.Set(regCounted, backendChosen), goTo(SessionAffinity), goTo(SelectBackend)}
	if len(f.Sources) == 0 {
		l.add(ServiceState, 92+above, match(asks...), goOn...)
		return
	}
	l.drop(ServiceState, 91+above, match(asks...), driver.DropNoProvider)
	for _, p := range f.Sources {
		if p.Addr().Is6() == f.Addr.Is6() {
			l.add(ServiceState, 92+above, match(append(slices.Clone(asks), of.InPrefix(src, p.Masked()))...), goOn...)
		}
	}
}

// isOnlyFrontend reports whether fragments without a port can only be for a frontend.
func (s Service) isOnlyFrontend(f Frontend) bool {
	if f.Protocol != model.ProtoUDP || len(f.Sources) > 0 || f.isNodePort() || f.Node {
		return false
	}
	for _, o := range s.frontendsOf(f.Addr.Is6()) {
		if o.Addr == f.Addr && o.Protocol == f.Protocol && o.Port != f.Port {
			return false
		}
	}
	return true
}
