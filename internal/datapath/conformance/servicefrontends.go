package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// testFrontends holds a driver to them: clients inside and, where it serves these,
// outside.
func testFrontends(t *testing.T, h Harness) {
	t.Helper()
	var cases []outsideCase
	for _, sub := range []struct {
		name string
		run  func(*frontends)
	}{
		{"Translated", (*frontends).translated},
		{"Nodes", (*frontends).nodes},
		{"Asked", (*frontends).asked},
		{"Neighbours", (*frontends).neighbours},
		{"Shared", (*frontends).shared},
		{"Sources", (*frontends).sources},
		{"Policies", (*frontends).policies},
		{"Ends", (*frontends).connectionEnd},
		{"Claimed", (*frontends).claimed},
		{"Restart", (*frontends).restarted},
		{"Outside", (*frontends).clients},
		{"Hidden", (*frontends).hidden},
		{"Domains", (*frontends).domains},
		{"Closed", (*frontends).closed},
	} {
		cases = append(cases, outsideCase{sub.name, func(s *externalTest) { sub.run(newFrontends(s)) }})
	}
	tryOutside(t, h, func(c driver.Capabilities) bool { return c.Frontends }, cases)
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
	for _, v6 := range ipv4and6 {
		pic.NodeAddrs = pic.NodeAddrs.Set(node(v6), struct{}{})
		pic.NodeAddrs = pic.NodeAddrs.Set(node(v6).Next(), struct{}{})
	}
	return pic
}

// askAt makes the first packet of a container's new connection to a frontend.
func (s *frontends) askAt(client model.Endpoint, proto model.Protocol, at netip.Addr) reference.Packet {
	p := s.services.ask(client, proto, at.Is6())
	p.Dst = at
	return p
}

func (s *frontends) translated() {
	client := s.services.at("web1")
	s.applyServices(s.withFrontends(append(both(1), both(2)...), "db1", "db2", "web1"))
	for _, v6 := range ipv4and6 {
		for i := range byte(2) {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := fmt.Sprintf("%s, protocol %d", frontendAddr(i+1, v6), proto)
				p := s.askAt(client, proto, frontendAddr(i+1, v6))
				e := s.services.receiverOf(what, s.services.Send(s.t, p))
				if e.Key == client.Key {
					continue // see Itself
				}
				s.services.answered(what, client, p, s.services.replyOf(p, e))
				s.services.reached(what+", later", laterPacket(p), e.Key.ID)
			}
		}
		p := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
		p.DstPort = 443
		if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("%s: a port that nobody has: %s (%+v), want a refusal", ipText(v6), v, v.Answer)
		}
	}
}

// nodes: at a node's address the frontends' ports are services', all else is not their affair.
func (s *frontends) nodes() {
	client := s.services.at("web1")
	of := s.withFrontends(nodes, "db1", "db2")
	plain := func(what string, p reference.Packet) {
		s.t.Helper()
		s.services.apply(s.t, s.desiredState())
		want := s.services.Send(s.t, p)
		s.applyServices(of)
		p.SrcPort++
		if got := s.services.Send(s.t, p); got.Passed() != want.Passed() || !nowhere(got) && got.Sent != nil && got.Sent.Dst != p.Dst {
			s.t.Errorf("%s: %s (%+v), without the service %s: want the same", what, got, got.Sent, want)
		}
	}
	for _, v6 := range ipv4and6 {
		for _, a := range []netip.Addr{node(v6), node(v6).Next()} {
			s.applyServices(of)
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				p := s.askAt(client, proto, a)
				e := s.services.reached(a.String(), p, "db1", "db2")
				s.services.answered(a.String(), client, p, s.services.replyOf(p, e))
				s.services.reached(a.String()+", later", laterPacket(p), e.Key.ID)
			}
		}
		for what, change := range map[string]func(*reference.Packet){
			"another port":     func(p *reference.Packet) { p.DstPort = 22 },
			"another protocol": func(p *reference.Packet) { p.Proto, p.TCPFlags = model.ProtoUDP, 0 },
		} {
			p := s.askAt(client, model.ProtoTCP, node(v6))
			change(&p)
			plain(what+", "+ipText(v6), p)
		}
		echo := between(s.services.top, client, client, model.ProtoICMP, v6, 7, 0)
		echo.DstMAC, echo.Dst = desired.RouterMAC, node(v6)
		plain("echo, "+ipText(v6), echo)
		s.applyServices(of)
		p := s.askAt(client, model.ProtoUDP, node(v6))
		first, last, _ := inParts(p, uint32(s.services.sport))
		if s.services.SkipPacket != nil && s.services.SkipPacket(first) != "" {
			continue
		}
		e := s.services.reached("a first fragment", first, "db1", "db2")
		if to := s.services.receiverOf("the last fragment", s.services.Send(s.t, last)); to.Key != e.Key {
			s.t.Errorf("%s: the last fragment came to %s, the first to %s", ipText(v6), to.Key, e.Key)
		}
		s.services.answered("its answer", client, p, s.services.replyOf(p, e))
	}
	own := of // which has these ports at nodes' addresses alone
	own.IPv4, own.IPv6, own.Ports = s.services.shop().IPv4, s.services.shop().IPv6, []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 8088, Backend: 8080}}
	s.applyServices(own)
	for _, v6 := range ipv4and6 {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			if v := s.services.Send(s.t, s.services.ask(client, proto, v6)); !nowhere(v) || v.Answer == nil {
				s.t.Errorf("%s %s: a node's port at the virtual address: %s (%+v), want a refusal", ipText(v6), proto, v, v.Sent)
			}
		}
	}
	pic := s.desiredState(of)
	pic.NodeAddrs = pic.NodeAddrs.Delete(node(false))
	p := s.askAt(client, model.ProtoTCP, node(false))
	s.services.reached("a node", p, "db1", "db2")
	s.services.apply(s.t, pic)
	if v := s.services.Send(s.t, laterPacket(p)); !nowhere(v) && v.Sent != nil && v.Sent.Dst != p.Dst {
		s.t.Errorf("a node no more: %s (%+v), want the packet as it came, or nowhere", v, v.Sent)
	}
}

// neighbours: frontends' addresses are resolved like virtual ones, nodes' addresses are
// not.
func (s *frontends) neighbours() {
	s.applyServices(s.withFrontends(append(both(1), nodes...), "db1"))
	client := s.services.at("web1")
	for _, v6 := range ipv4and6 {
		for _, a := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
			p := origin(s.services.top, client)
			p.SrcMAC, p.DstMAC = client.MAC, reference.Broadcast
			if v6 {
				p.Src, p.Proto, p.ICMPType = client.IPv6, model.ProtoICMPv6, reference.NDNeighborSolicit
				p.Dst, p.DstMAC = reference.SolicitedNode(a)
				p.ND = &reference.ND{Target: a, LinkAddr: p.SrcMAC, HasLink: true}
			} else {
				p.ARP = &reference.ARP{Op: reference.ARPRequest, SenderMAC: p.SrcMAC, SenderIP: client.IPv4, TargetIP: a}
			}
			if v := s.services.Send(s.t, p); (v.Answer != nil) != (a != node(v6)) {
				s.t.Errorf("asked for %s: %s (%+v)", a, v, v.Answer)
			}
		}
	}
}

// shared: services have ports of one address, each its own; of two that want one port
// the first by key has it, and neither loses what it has when the other one changes.
func (s *frontends) shared() {
	client := s.services.at("web1")
	one, two := s.withFrontends(both(1), "db1"), s.withFrontends(both(1), "web2")
	two.Key.Name = "zoo"
	for i := range two.Frontends {
		two.Frontends[i].Port++
	}
	for _, v6 := range ipv4and6 {
		s.applyServices(one, two)
		p, q := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6)), s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
		q.DstPort++
		s.services.reached("the first one", p, "db1")
		s.services.answered("the first one", client, p, s.services.replyOf(p, s.services.at("db1")))
		s.services.reached("the second one", q, "web2")
		s.services.answered("the second one", client, q, s.services.replyOf(q, s.services.at("web2")))
		s.applyServices(two)
		s.services.denied("the first one is gone", laterPacket(p))
		s.services.reached("the second one stays", laterPacket(q), "web2")
		also := s.withFrontends(both(1), "web2")
		also.Key.Name = "zoo"
		s.applyServices(one, also)
		s.services.denied("the second one has another port", laterPacket(q))
		r := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
		s.services.reached("both want a port", r, "db1")
		s.services.answered("both want a port", client, r, s.services.replyOf(r, s.services.at("db1")))
		s.applyServices(also)
		if e := s.services.receiverOf("the first one leaves it", s.services.Send(s.t, s.askAt(client, model.ProtoTCP, frontendAddr(1, v6)))); e.Key.ID != "web2" {
			s.t.Errorf("%s got it, want web2", e.Key)
		}
		s.applyServices(one, also)
		s.services.reached("the first one is back", s.askAt(client, model.ProtoTCP, frontendAddr(1, v6)), "db1")
	}
}

// sources: a frontend may take some clients only, and tells others nothing.
func (s *frontends) sources() {
	client := s.services.at("web1")
	for _, v6 := range ipv4and6 {
		own := client.IPv4
		if v6 {
			own = client.IPv6
		}
		of := s.withFrontends(both(1), "db1")
		ranges := func(of desired.Service, p ...netip.Prefix) desired.Service {
			of.Frontends = slices.Clone(of.Frontends)
			for i := range of.Frontends {
				of.Frontends[i].Sources = p
			}
			return of
		}
		wide, _ := own.Prefix(own.BitLen() - 8)
		elsewhere, _ := frontendAddr(9, v6).Prefix(own.BitLen() - 4)
		s.applyServices(of)
		living := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
		s.services.reached("before", living, "db1")
		s.services.answered("before", client, living, s.services.replyOf(living, s.services.at("db1")))
		for _, x := range []struct {
			p     []netip.Prefix
			taken bool
		}{
			{[]netip.Prefix{elsewhere}, false},
			{[]netip.Prefix{elsewhere, wide}, true},
			{[]netip.Prefix{netip.PrefixFrom(own, own.BitLen())}, true},
			{[]netip.Prefix{netip.PrefixFrom(own.Next(), own.BitLen())}, false},
			{[]netip.Prefix{netip.PrefixFrom(desired.AnyNode(own), 0)}, true},
			{[]netip.Prefix{netip.PrefixFrom(desired.AnyNode(frontendAddr(1, !v6)), 0)}, false},
			{nil, true},
		} {
			s.applyServices(ranges(of, x.p...))
			p := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
			if v := s.services.Send(s.t, p); nowhere(v) == x.taken || v.Answer != nil {
				s.t.Errorf("%s, of %s: %s (%+v), want it taken: %v", own, x.p, v, v.Answer, x.taken)
			}
			s.services.reached("what lives goes on", laterPacket(living), "db1")
		}
	}
}

// policies: each frontend has its own traffic policy; so one choice serves several.
func (s *frontends) policies() {
	client := s.services.at("web1")
	of := s.withFrontends(append(both(1), both(2)...), "db1", "db2")
	for i := range of.Frontends {
		if f := &of.Frontends[i]; f.Addr == frontendAddr(2, f.Addr.Is6()) {
			f.InternalPolicy = desired.TrafficLocal
		}
	}
	s.applyServices(of)
	local := func(v6 bool) {
		s.t.Helper()
		for range 16 {
			s.services.reached("here", s.askAt(client, model.ProtoTCP, frontendAddr(2, v6)), "db1")
		}
	}
	all := func(v6 bool) {
		s.t.Helper()
		got := map[model.EndpointID]bool{}
		for range 100 {
			got[s.services.reached("all", s.askAt(client, model.ProtoTCP, frontendAddr(1, v6)), "db1", "db2").Key.ID] = true
		}
		if len(got) != 2 {
			s.t.Errorf("%s: only %v got some", ipText(v6), got)
		}
	}
	for _, v6 := range ipv4and6 {
		all(v6)
		local(v6)
	}
	none := s.services.inState(of, "db1", desired.BackendUnhealthy)
	s.applyServices(none)
	for _, v6 := range ipv4and6 {
		s.services.reached("elsewhere", s.askAt(client, model.ProtoTCP, frontendAddr(1, v6)), "db2")
		if v := s.services.Send(s.t, s.askAt(client, model.ProtoTCP, frontendAddr(2, v6))); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("%s: none here: %s (%+v), want a refusal", ipText(v6), v, v.Answer)
		}
	}
}

// connectionEnd: what becomes of connections when their frontend changes.
func (s *frontends) connectionEnd() {
	client := s.services.at("web1")
	for _, at := range [][]netip.Addr{both(1), nodes} {
		of := s.withFrontends(at, "db1")
		for _, v6 := range ipv4and6 {
			a := frontendAddr(1, v6)
			if at[0].IsUnspecified() {
				a = node(v6)
			}
			living := func() (tcp, udp reference.Packet) {
				s.t.Helper()
				s.applyServices(of)
				tcp, udp = s.askAt(client, model.ProtoTCP, a), s.askAt(client, model.ProtoUDP, a)
				for _, p := range []reference.Packet{tcp, udp} {
					s.services.reached("at first", p, "db1")
					s.services.answered("at first", client, p, s.services.replyOf(p, s.services.at("db1")))
				}
				return laterPacket(tcp), udp
			}
			tcp, udp := living()
			moved := of
			moved.Frontends = slices.Clone(of.Frontends)
			for i := range moved.Frontends {
				moved.Frontends[i].Backend++
			}
			s.applyServices(moved)
			s.services.reached("TCP, its face leads to another port", tcp, "db1")
			if v := s.services.Send(s.t, udp); v.Sent == nil || v.Sent.DstPort != 5354 {
				s.t.Errorf("%s: UDP, its face leads to another port: %s (%+v), want it at 5354", a, v, v.Sent)
			}
			tcp, _ = living()
			less := of
			less.Frontends = slices.DeleteFunc(slices.Clone(of.Frontends), func(f desired.Frontend) bool { return f.Protocol == model.ProtoTCP })
			s.applyServices(less)
			elsewhere := s.withFrontends(at, "db2")
			s.applyServices(elsewhere)
			s.services.reached("its face has gone and is back, for another backend", tcp, "db2")
			tcp, _ = living()
			s.applyServices()
			s.applyServices(elsewhere)
			s.services.reached("its service has gone and is back, for another backend", tcp, "db2")
		}
	}
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
		s.services.reached("a face", p, "db1")
		s.services.answered("a face", client, p, s.services.replyOf(p, db1))
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
			s.t.Errorf("%s: to an endpoint whose address a face wants: %s (%+v)", ipText(v6), v, v.Sent)
		}
	}
}

// restarted: a driver that restarts keeps the frontends.
func (s *frontends) restarted() {
	client := s.services.at("web1")
	one, two := s.withFrontends(append(both(1), nodes...), "db1"), s.withFrontends(both(1), "web2")
	two.Key.Name = "zoo"
	for i := range two.Frontends {
		two.Frontends[i].Port++
		two.Frontends[i].Sources = []netip.Prefix{netip.PrefixFrom(client.IPv4, 32), netip.PrefixFrom(client.IPv6, 128)}
	}
	late := s.withFrontends(both(1), "web2") // wants what one has
	late.Key.Name = "zzz"
	pic := s.desiredState(one, two, late)
	s.services.apply(s.t, pic)
	p, n := s.askAt(client, model.ProtoTCP, frontendAddr(1, true)), s.askAt(client, model.ProtoTCP, node(false))
	for _, p := range []reference.Packet{p, n} {
		s.services.reached("before", p, "db1")
		s.services.answered("before", client, p, s.services.replyOf(p, s.services.at("db1")))
	}
	want := s.services.inspect(s.t)
	s.services.restart(s.t)
	s.services.apply(s.t, pic)
	if diff := cmp.Diff(want, s.services.inspect(s.t)); diff != "" {
		s.t.Errorf("state after a restart (-want +got):\n%s", diff)
	}
	if r := s.services.apply(s.t, pic); r.Changes != 0 {
		s.t.Errorf("the second Apply after a restart made %d changes", r.Changes)
	}
	for range 4 {
		s.services.answered("after a restart, its answer", client, p, s.services.replyOf(laterPacket(p), s.services.at("db1")))
		s.services.restart(s.t)
		s.services.apply(s.t, pic)
	}
	s.services.reached("after a restart", laterPacket(p), "db1")
	s.services.reached("after a restart, at a node", laterPacket(n), "db1")
	s.services.restart(s.t)
	s.services.apply(s.t, s.desiredState(two))
	s.services.denied("its service has gone meanwhile", laterPacket(p))
	q := s.askAt(client, model.ProtoTCP, frontendAddr(1, false))
	q.DstPort++
	s.services.reached("the other one", q, "web2")
}
