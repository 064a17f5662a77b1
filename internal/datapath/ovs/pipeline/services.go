package pipeline

import (
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	of "github.com/contiv/netplugin/v2/internal/datapath/ovs/openflow"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Services (docs/design/services.md). A packet to a virtual address is translated before
// all else, in a conntrack zone that has nothing but translations, and is a packet to the
// backend from then on. A reply is translated last.

// serviceBit marks the numbers of services in regService, which has the places of
// Flood's chain else.
const serviceBit = 1 << 31

// markService in ct_mark says of a connection that a service translated it. In the zone of
// translations it says that there is a translation.
const markService = 1

// markNoService in ct_mark says that no service translated a connection. It is visible while
// the connection is unanswered, which conntrack calls new.
const markNoService = 32

var (
	isServiceConn   = of.Masked(of.CtMark, of.Uint(markService), of.Uint(markService))
	isNoServiceConn = of.Masked(of.CtMark, of.Uint(markNoService), of.Uint(markNoService))
	noMark          = of.Masked(of.CtMark, of.Value{}, of.Uint(^uint32(markNoService|markHostSocket))) // but perhaps these
)

// AffineMagic is in place of CookieMagic in the cookies of flows that the switch
// learns; the lower bits are the service's number.
const AffineMagic uint64 = 0xc0f3 << 48

var isService = of.Masked(regService, of.Uint(uint32(serviceBit)), of.Uint(uint32(serviceBit)))

// ServiceNumber is the number that a service would like to have.
func ServiceNumber(k model.ServiceKey) uint32 { return service(NumberOf(k.String())) }

// service makes a service's number of another one.
func service(n uint32) uint32 {
	if n |= serviceBit; n&sharedVIPBits == sharedVIPBits {
		n &^= serviceBit >> 1
	}
	return n
}

// NumberOf is a number for a text.
func NumberOf(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	return h.Sum32()
}

// NextService is another number for a service when one is taken.
func NextService(n uint32) uint32 { return service(n + 1) }

// TranslationsOf reads from a flow of ServiceDomain in which zone a domain's
// translations are.
func TranslationsOf(f of.Flow) (d desired.Domain, zone uint16, ok bool) {
	if kind, _, ours := KindOf(f.Cookie); !ours || kind != KindService || Stage(f.Table) != Output || len(f.Actions) < 2 {
		return 0, 0, false
	}
	set, ok := f.Actions[0].(of.SetField)
	for _, t := range f.Match {
		if t.Field == regDomain {
			d = desired.Domain(t.Value.Lo)
		}
	}
	return d, uint16(set.Value.Lo), ok && set.Field == regZone && d != 0
}

// Service is a service of the desired state, and the numbers that it has in the switch.
type Service struct {
	*desired.Service
	Number          uint32
	Domain          desired.Domain
	Zone            uint16 // of the domain's translations
	Group           func(GroupOf) uint32
	Counted         bool                  // its packets are counted by backend
	ServedFrontends []Frontend            // its frontends, of TCP and UDP
	IsEndpoint      func(netip.Addr) bool // whether an endpoint of the domain has the address; nil = none has
}

func ethOf(v6 bool) (eth of.Term, src, dst of.Field) {
	if v6 {
		return isIPv6, of.IPv6Src, of.IPv6Dst
	}
	return isIP, of.NwSrc, of.NwDst
}

func dstPort(p model.Protocol) of.Field {
	if p == model.ProtoUDP {
		return of.UDPDst
	}
	return of.TCPDst
}

func inDomain(d desired.Domain) of.Term { return of.Eq(regDomain, d) }

// serviceConntrack passes a packet through the zone of translations.
func serviceConntrack(next Stage) of.CT {
	return of.CT{ZoneField: regZone, NAT: of.NATKnown, Recirc: true, Table: uint8(next)}
}

// portProtocols are what both tracking and services know.
var portProtocols = []model.Protocol{model.ProtoTCP, model.ProtoUDP}

// icmpErrors are the types of ICMP and ICMPv6 that are errors.
var icmpErrors = map[bool][]int{false: {3, 4, 5, 11, 12}, true: {1, 2, 3, 4}}

// trackedByServices adds flows to a stage for what translations know: TCP, UDP, errors
// about them, and fragments whose protocol is not seen.
func (l *list) trackedByServices(s Stage, acts ...of.Action) {
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		for _, p := range portProtocols {
			l.add(s, 100, match(eth, isProto(int(p))), acts...)
		}
		for _, typ := range icmpErrors[v6] {
			if v6 {
				l.add(s, 100, match(eth, isProto(58), of.Eq(of.ICMPv6Type, typ)), acts...)
			} else {
				l.add(s, 100, match(eth, isProto(1), of.Eq(of.ICMPType, typ)), acts...)
			}
		}
	}
	l.add(s, 100, match(isIPv6, isProto(protoFragment)), acts...)
}

// serviceBase adds what services need whatever there are.
func (l baseFlows) serviceBase() {
	l.drop(ServiceSource, 0, nil, driver.DropUnknownSource)
	l.trackedByServices(ServiceConntrack, serviceConntrack(ServiceState))
	l.drop(ServiceConntrack, 0, nil, driver.DropNoProvider)

	l.drop(ServiceState, 0, nil, driver.DropInvalid)
	l.drop(ServiceState, 200, match(of.State(of.StateInv|of.StateTrk, 0)), driver.DropInvalid)
	fresh, known := of.State(of.StateNew|of.StateTrk, 0), of.State(of.StateTrk, of.StateNew|of.StateInv)
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		for _, s := range []Stage{ServiceSource, ServiceConntrack, HairpinReply} {
			l.drop(s, 300, match(eth, of.Eq(of.IPTTL, 0)), driver.DropInvalid)
		}
		tcp := match(eth, isProto(6))
		for _, flags := range []int{0x04, 0x12} { // a reset, and an answer, begin nothing
			l.drop(ServiceState, 190, match(append(tcp, fresh, of.Masked(of.TCPFlags, of.Uint(flags), of.Uint(flags)))...), driver.DropInvalid)
		}
		icmp := isProto(1)
		if v6 {
			icmp = isProto(58)
		}
		l.drop(ServiceState, 180, match(eth, icmp, fresh), driver.DropInvalid)
		again := [][]of.Term{{known}}
		if l.c.Pieces {
			again = append(again, []of.Term{fresh, isServiceConn})
		}
		for _, there := range again {
			l.add(ServiceState, 170, match(append(append(tcp, there...), of.Masked(of.TCPFlags, of.Uint(2), of.Uint(0x12)))...), notePort, goTo(BackendCheck))
		}
		if !l.c.Pieces { // see hostPort
			l.add(ServiceState, 160, match(eth, of.State(of.StateRel|of.StateTrk, of.StateNew)),
				of.CT{Commit: true, ZoneField: regZone, NAT: of.NATKnown, Recirc: true, Table: uint8(Backend)})
		}
		for _, p := range portProtocols {
			l.refuseBy(l.c, MeterServices, SelectBackend, 2, match(eth, isProto(int(p))), driver.DropNoProvider)
		}
		l.drop(SelectBackend, 4, match(eth, isFragment), driver.DropInvalid)

		l.add(ConntrackCommit, 12, match(eth, isService, fresh), goTo(CountConnections), commitMarked(markService))
		l.add(Output, 180, match(eth, isService, of.Masked(regCounted, of.Value{}, of.Uint(uint32(packetCounted)))), of.Set(regCounted, uint32(packetCounted)), goTo(CountPackets), goTo(Output))
		// A tuple behind a translation is the translation's alone.
		l.drop(ConntrackState, 92, match(eth, isService, of.State(of.StateTrk, of.StateNew|of.StateRel), noMark), driver.DropInvalid)
		l.drop(ConntrackState, 92, match(eth, isService, fresh, isNoServiceConn), driver.DropInvalid)
		// What a backend sent that was no answer, such as late of when it was no backend, has
		// begun a connection by the tuple, which each of the client's packets would keep.
		late := match(eth, isService, of.State(of.StateRpl|of.StateTrk, of.StateNew|of.StateRel|of.StateInv), noMark)
		take := of.CT{Commit: true, Force: true, ZoneField: regDomain, Recirc: true, Table: uint8(ConntrackState)}
		l.add(ConntrackState, 94, match(append(late, isProto(17))...), take)
		l.add(ConntrackState, 94, match(append(late, isProto(6), of.Masked(of.TCPFlags, of.Value{}, of.Uint(2)))...), take)
		other := match(eth, of.Masked(regService, of.Value{}, of.Uint(uint32(serviceBit))), isServiceConn)
		l.drop(ConntrackState, 92, match(append(other, origin(fromPort), of.State(of.StateTrk, of.StateNew|of.StateRel|of.StateRpl))...), driver.DropInvalid)
		l.drop(ConntrackState, 92, match(append(other, isProto(6), fresh)...), driver.DropInvalid) // so tracking in user space calls a backend's request
		back := of.State(of.StateRpl|of.StateTrk, of.StateInv)
		l.add(ServiceReply, 100, match(eth, back), goTo(CountPackets), of.SetField{Field: of.EthSrc, Value: of.MAC(desired.RouterMAC)}, of.OutputReg{Field: regPort})
		l.add(HairpinUnSNAT, 100, match(eth, back), noteBackend(v6), serviceConntrack(HairpinUnDNAT))
		l.add(HairpinUnDNAT, 100, match(eth, back), append([]of.Action{goTo(CountPackets)}, byRouter(of.Output{Port: of.PortInPort})...)...)
	}
	l.add(ServiceState, 100, match(known), notePort, goTo(Backend))
	// To tracking all is new until its backend answers. In user space it is translated by
	// now; in the kernel by the group's action alone, as its connection was, whatever the
	// group says.
	if l.c.Pieces {
		l.add(ServiceState, 95, match(fresh, isServiceConn), notePort, goTo(Backend))
	} else {
		l.add(ServiceState, 95, match(fresh, isServiceConn), notePort, goTo(SessionAffinity), goTo(SelectBackend))
	}
	l.add(ServiceState, 90, match(fresh), notePort, of.Set(regCounted, backendChosen), goTo(SessionAffinity), goTo(SelectBackend))
	if l.c.Answers {
		l.refuseBy(l.c, MeterServices, BackendCheck, 0, nil, driver.DropInvalid)
	} else {
		l.add(BackendCheck, 0, nil, goTo(Backend))
	}
	l.drop(SelectBackend, 0, nil, driver.DropNoProvider)
	l.drop(Backend, 0, nil, driver.DropUnknownDest)
	l.add(Backend, 10, match(joined), goTo(Destination))
	l.drop(Backend, 200, match(of.State(of.StateInv|of.StateTrk, 0)), driver.DropInvalid)
	l.drop(Hairpin, 100, match(of.State(of.StateInv|of.StateTrk, 0)), driver.DropInvalid)
	l.add(Hairpin, 5, match(isBackendChosen), goTo(CountConnections), goTo(CountPackets), of.Output{Port: of.PortInPort})
	l.add(Hairpin, 0, nil, goTo(CountPackets), of.Output{Port: of.PortInPort})
	l.trackedByServices(HairpinReply, of.CT{ZoneField: regDomain, NAT: of.NATKnown, Recirc: true, Table: uint8(HairpinUnSNAT)})
	for _, s := range []Stage{HairpinReply, HairpinUnSNAT, HairpinUnDNAT} {
		l.drop(s, 0, nil, driver.DropUnknownDest)
	}
	l.drop(ServiceReply, 0, nil, driver.DropInvalid)
	l.frontendBase()
	l.externalBase()
}

func commitMarked(mark uint32) of.CT {
	return of.CT{Commit: true, ZoneField: regDomain, Mark: mark, Recirc: true, Table: uint8(Output)}
}

// byRouter turns a frame back to its sender's MAC, from the router's.
func byRouter(then ...of.Action) []of.Action {
	return append([]of.Action{of.Move{From: of.EthSrc, To: of.EthDst}, of.SetField{Field: of.EthSrc, Value: of.MAC(desired.RouterMAC)}}, then...)
}

// serviceNetwork adds who of a network may ask a service: those whom a backend
// elsewhere can answer, and know.
func (l networkFlows) serviceNetwork() {
	if l.n.Encap == model.EncapVXLAN {
		l.drop(ServiceSource, 200, match(network(l.n.ID), of.Eq(regSrc, model.IdentityUnknown)), driver.DropUnknownSource)
	}
	for _, p := range []netip.Prefix{l.n.Subnet, l.n.Subnet6} {
		if p.IsValid() {
			eth, src, _ := ethOf(p.Addr().Is6())
			l.add(ServiceSource, 100, match(network(l.n.ID), eth, of.InPrefix(src, p.Masked())), goTo(ServiceConntrack))
		}
	}
}

// backend adds the flows by which translated packets find an endpoint on their
// sender's network; to another one they are routed.
func (l networkFlows) backend(mac model.MAC, own ...netip.Addr) {
	for _, a := range own {
		if l.n.Contains(a) {
			l.add(Backend, 100, toAddr(a, network(l.n.ID)), of.SetField{Field: of.EthDst, Value: of.MAC(mac)}, goTo(Destination))
		}
	}
}

// hairpin adds what a port needs to be its own backend: it sees the link-local
// service address. The translation of its source is in the domain's zone, where
// nothing else goes from an address to itself.
func (l networkFlows) hairpin(p LocalPort) {
	for _, a := range []netip.Addr{p.IPv4, p.IPv6} {
		if l.n.Contains(a) {
			seen := desired.ServiceAddr
			if a.Is6() {
				seen = desired.ServiceAddr6
				// A socket that is bound to no address answers by the link-local one (RFC 6724 rule 2).
				l.add(Destination, 207, toAddr(seen, of.Eq(of.InPort, p.Number), of.EqAddr(of.IPv6Src, p.MAC.LinkLocal())),
					of.SetField{Field: of.IPv6Src, Value: of.Addr(a)}, goTo(Destination))
			}
			l.add(Backend, 110, toAddr(a, of.Eq(of.InPort, p.Number)), byRouter(
				of.CT{Commit: true, ZoneField: regDomain, NAT: of.NATSrc, To: seen, Recirc: true, Table: uint8(Hairpin)})...)
		}
	}
}

// ServiceDomain returns the flows that a domain has while it has services; zone is the zone
// of its translations.
func ServiceDomain(c Config, d desired.Domain, zone uint16) []of.Flow {
	l := &list{cookie: cookie(KindService, 0)}
	here := []of.Term{inDomain(d), origin(fromPort)}
	l.answerARP(ARPResponder, 220, match(append(here, of.EqAddr(of.ArpTpa, desired.ServiceAddr))...), desired.RouterMAC, desired.ServiceAddr, goTo(ReplyToPort))
	l.answersForRouter(c, []netip.Addr{desired.ServiceAddr6}, here...)
	for _, a := range []netip.Addr{desired.ServiceAddr, desired.ServiceAddr6} {
		l.add(Destination, 206, toAddr(a, append(here, unicast)...), of.Set(regZone, zone), goTo(HairpinReply))
	}
	for _, v6 := range []bool{false, true} {
		eth, _, _ := ethOf(v6)
		l.add(Output, 150, match(eth, inDomain(d), isReply, isServiceConn), of.Set(regZone, zone), noteBackend(v6), serviceConntrack(ServiceReply))
	}
	repliesToExternal(l, c, d, zone)
	relayFlows{l, c}.domain(d, zone)
	return l.flows
}

// ServiceFlows returns the flows and the groups of a service.
func ServiceFlows(c Config, s Service) ([]of.Flow, []of.Group) {
	l := &list{cookie: cookie(KindService, 0)}
	var groups []of.Group
	for _, v6 := range []bool{false, true} {
		for _, g := range s.family(l, c, newChooser(s.Service, v6)) {
			if !slices.ContainsFunc(groups, func(o of.Group) bool { return o.ID == g.ID }) {
				groups = append(groups, g)
			}
		}
	}
	return l.flows, groups
}

func (s Service) family(l *list, c Config, choose *chooser) []of.Group {
	v6, vip := choose.v6, s.IPv4
	if v6 {
		vip = s.IPv6
	}
	hasFrontends := slices.ContainsFunc(s.ServedFrontends, func(f Frontend) bool { return f.Addr.Is6() == v6 })
	if !vip.IsValid() && !hasFrontends {
		return nil
	}
	eth, src, dst := ethOf(v6)
	if vip.IsValid() {
		ownsAddress(l, c, vip, []of.Term{inDomain(s.Domain), origin(fromPort)}, of.Set(regService, s.Number), of.Set(regZone, s.Zone), goTo(ServiceSource))
		s.externalRequests(l, c, vip)
		if s.Counted {
			s.counted(l, vip)
		}
	}
	self := []of.Term{of.Eq(regService, s.Number), eth}
	s.segmentsAfterRestart(l, v6)
	s.externalBackends(l, v6)
	if s.Affinity > 0 {
		s.learnAffinity(l, c, v6, self)
	}
	if hasFrontends {
		return s.frontendFlows(l, c, choose, self)
	}
	var groups []of.Group
	for _, x := range s.clientClasses(c, choose, self, s.InternalPolicy, s.ExternalPolicy) {
		for _, b := range x.all {
			l.add(BackendCheck, 100, match(append(slices.Clone(x.who), of.EqAddr(dst, b.Addr(v6)))...), goTo(Backend))
		}
		if len(x.all) == 0 && x.above > 0 {
			l.refuseBy(c, MeterServices, SelectBackend, 100+x.above, match(x.who...), driver.DropNoProvider)
		}
		for _, port := range countable(s.Service) {
			if len(x.all) == 0 {
				if x.unanswered {
					l.drop(SelectBackend, 10+x.above, x.matchPort(port), driver.DropNoProvider)
				}
				continue
			}
			groups = append(groups, s.port(l, c, x, frontendMatch{port, false, port.Protocol == model.ProtoUDP && s.oneUDP()}, src)...)
		}
	}
	return groups
}

// segmentsAfterRestart drops what a backend sends in the middle of a connection that is not
// known: after a restart of the switch its client has to speak first, which makes the
// translation again, or it would see the backend's own address.
func (s Service) segmentsAfterRestart(l *list, v6 bool) {
	eth, src, _ := ethOf(v6)
	var ports []uint16 // the backends'
	for _, p := range s.Ports {
		if p.Protocol == model.ProtoTCP {
			ports = append(ports, p.Backend)
		}
	}
	for _, f := range s.ServedFrontends {
		if f.Protocol == model.ProtoTCP && f.Addr.Is6() == v6 {
			ports = append(ports, f.Backend)
		}
	}
	slices.Sort(ports)
	for _, port := range slices.Compact(ports) {
		for _, b := range s.Backends.All() {
			if a := b.Addr(v6); a.IsValid() {
				l.drop(ConntrackState, 91, match(inDomain(s.Domain), eth, isProto(6), of.State(of.StateNew|of.StateTrk, 0),
					of.Masked(of.TCPFlags, of.Value{}, of.Uint(2)), of.EqAddr(src, a), of.Eq(of.TCPSrc, b.PortFor(v6, port))), driver.DropInvalid)
			}
		}
	}
}

// ServiceRequest reports what the driver has to do about a packet to a service that a flow has
// sent up: refuse it, or send it once more as a new connection's.
func ServiceRequest(table uint8, cookie uint64) (refuse, again bool) {
	kind, _, ours := KindOf(cookie)
	if !ours || kind != KindDrop || cookie&AnswerBit == 0 {
		return false, false
	}
	return Stage(table) == SelectBackend, Stage(table) == BackendCheck
}

// RegService and RegZone tell the driver of a packet to a service.
const (
	RegService = regService
	RegZone    = regZone
	RegDomain  = regDomain
)

// IsService reports whether a value of RegService is a service's number.
func IsService(n uint32) bool { return n&serviceBit != 0 }
