package conformance

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// frontends tests services at ports of shared addresses and of nodes' addresses: "Frontends"
// of docs/design/services.md.
type frontends struct {
	services *services
	outside  *externalTest
	t        *testing.T
}

// newFrontends tries frontends on what clients outside have.
func newFrontends(o *externalTest) *frontends { return &frontends{o.services, o, o.t} }

// frontendAddr is an address that services have frontends at, i = 1 or 2, and node one of a node.
func frontendAddr(i byte, v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0xfa, 15: i})
	}
	return netip.AddrFrom4([4]byte{203, 0, 113, i})
}

func node(v6 bool) netip.Addr { return frontendAddr(77, v6) }

// testFrontends: addresses that belong to somebody altogether have no frontends of others.
func testFrontends(t *testing.T, h Harness) {
	t.Helper()
	tryOutside(t, h, func(c driver.Capabilities) bool { return c.Frontends }, []outsideCase{
		{"Claimed", func(s *externalTest) { newFrontends(s).claimed() }},
		{"Ends", func(s *externalTest) { newFrontends(s).connectionEnd() }},
		{"Domains", func(s *externalTest) { newFrontends(s).domains() }},
	})
}

// withFrontends makes a service that has frontends only: TCP at port 80, UDP at port 53 of some
// addresses.
func (s *frontends) withFrontends(at []netip.Addr, ids ...model.EndpointID) desired.Service {
	out := s.services.shop(ids...)
	out.IPv4, out.IPv6, out.Ports, out.Exposed = netip.Addr{}, netip.Addr{}, nil, true
	for _, a := range at {
		out.Frontends = append(out.Frontends, desired.Frontend{Addr: a, Protocol: model.ProtoTCP, Port: 80, Backend: 8080}, desired.Frontend{Addr: a, Protocol: model.ProtoUDP, Port: 53, Backend: 5353})
	}
	slices.SortFunc(out.Frontends, desired.CompareFrontends)
	return out
}

// both are an address of each family.
func both(i byte) []netip.Addr { return []netip.Addr{frontendAddr(i, false), frontendAddr(i, true)} }

var nodes = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// applyServices applies the desired state with services, and the nodes' addresses.
func (s *frontends) applyServices(all ...desired.Service) {
	s.t.Helper()
	s.services.apply(s.t, s.desiredState(all...))
}

func (s *frontends) desiredState(all ...desired.Service) desired.Host {
	pic := s.services.w.Desired["h1"]
	for _, x := range all {
		pic.Services = pic.Services.Set(x.Key, &x)
	}
	for _, a := range nodeAddrs() {
		pic.NodeAddrs = pic.NodeAddrs.Set(a, struct{}{})
	}
	return pic
}

// askAt makes the first packet of a container's new connection to a frontend.
func (s *frontends) askAt(client model.Endpoint, proto model.Protocol, at netip.Addr) reference.Packet {
	p := s.services.ask(client, proto, at.Is6())
	p.Dst = at
	return p
}

// claimed: an address that a service has altogether has no frontends of others, nor has one
// that an endpoint has.
func (s *frontends) claimed() {
	client, db1 := s.services.at("web1"), s.services.at("db1")
	whole := s.services.shop("web2")
	whole.Key.Name = "zoo"
	for _, v6 := range ipv4and6 {
		of := s.withFrontends([]netip.Addr{vipOf(s.services.top.Network(s.services.key), v6)}, "db1")
		s.applyServices(of)
		p := s.services.ask(client, model.ProtoTCP, v6)
		s.services.reached("a frontend", p, "db1")
		s.services.answered("a frontend", client, p, s.services.replyOf(p, db1))
		s.applyServices(of, whole)
		s.services.reached("another one has the address", laterPacket(p), "web2")
		s.applyServices(of)
		s.services.reached("it has the address no more", s.services.ask(client, model.ProtoTCP, v6), "db1")
		own := s.services.at("web2").IPv4
		if v6 {
			own = s.services.at("web2").IPv6
		}
		s.applyServices(s.withFrontends([]netip.Addr{own}, "db1"))
		p = between(s.services.top, client, s.services.at("web2"), model.ProtoTCP, v6, 31000, 80)
		if v := s.services.Send(s.t, p); nowhere(v) || v.Sent != nil && (v.Sent.Dst != own || v.Sent.DstPort != 80) {
			s.t.Errorf("%s: to an endpoint whose address a frontend wants: %s (%+v)", ipText(v6), v, v.Sent)
		}
	}
}

// connectionEnd: connections end when their frontend goes for a moment, or is another service's by
// a node's address itself. One that two services want keeps them, also when the driver restarts.
func (s *frontends) connectionEnd() {
	client := s.services.at("web1")
	begin := func(what string, a netip.Addr) (living []reference.Packet) {
		s.t.Helper()
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			p := s.askAt(client, proto, a)
			s.services.answered(what, client, p, s.services.replyOf(p, s.services.reached(what, p, "db1")))
			living = append(living, laterPacket(p))
		}
		return living
	}
	goOn := func(what string, living []reference.Packet, id model.EndpointID) {
		s.t.Helper()
		for _, p := range living {
			s.services.answered(what, client, p, s.services.replyOf(p, s.services.reached(what, p, id)))
		}
	}
	for _, v6 := range ipv4and6 {
		for at, a := range map[netip.Addr]netip.Addr{frontendAddr(1, v6): frontendAddr(1, v6), desired.AnyNode(node(v6)): node(v6)} {
			of, elsewhere := s.withFrontends([]netip.Addr{at}, "db1"), s.withFrontends([]netip.Addr{at}, "db2")
			late := s.withFrontends([]netip.Addr{at}, "web2") // wants what it has
			late.Key.Name = "zzz"
			s.applyServices(of, late)
			living := begin("at first", a)
			s.services.restart(s.t)
			s.applyServices(of, late)
			for _, p := range living { // first, since its client would have the same backend chosen again
				s.services.answered("its answer after a restart", client, p, s.services.replyOf(p, s.services.at("db1")))
			}
			goOn("after a restart", living, "db1")
			none := of
			none.Frontends = nil
			none.IPv4 = vipOf(s.services.top.Network(s.services.key), false)
			s.applyServices(none)
			s.applyServices(elsewhere)
			goOn("its frontend was gone, and leads to another backend", living, "db2")
		}
		all, own := s.withFrontends(nodes, "db1"), s.withFrontends([]netip.Addr{node(false), node(true)}, "web2")
		own.Key.Name = "zoo"
		s.applyServices(all)
		at, other := begin("at a node", node(v6)), begin("at another node", node(v6).Next())
		s.applyServices(all, own)
		goOn("the node has the port by itself", at, "web2")
		goOn("another node has not", other, "db1")
		s.applyServices(all)
		goOn("the port is all nodes' again", at, "db1")
	}
}
