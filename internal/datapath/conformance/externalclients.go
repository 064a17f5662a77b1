package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// ThirdVTEP is the tunnel endpoint of a host that has no endpoints.
var ThirdVTEP = netip.MustParseAddr("192.168.7.3")

type outsideCase struct {
	name string
	run  func(*externalTest)
}

// testServicesOutside: clients on the host and beyond it reach exposed services.
func testServicesOutside(t *testing.T, h Harness) {
	t.Helper()
	tryOutside(t, h, func(c driver.Capabilities) bool { return c.ExternalServices }, []outsideCase{
		{"Translated", (*externalTest).translated},
		{"NoProvider", (*externalTest).noProvider},
		{"Who", (*externalTest).who},
		{"Policy", (*externalTest).policy},
		{"Ends", (*externalTest).connectionEnd},
		{"Fragments", (*externalTest).fragments},
		{"Errors", (*externalTest).errors},
		{"NotBack", (*externalTest).notBack},
	})
}

// tryOutside tries cases on the first of three hosts, on a driver that can.
func tryOutside(t *testing.T, h Harness, can func(driver.Capabilities) bool, cases []outsideCase) {
	t.Helper()
	if h.Send == nil || !h.Egress {
		t.Skip("the harness has no WayOut")
	}
	b := open(t, h)
	if !can(b.drv.Capabilities()) {
		t.Skip("the driver knows no clients outside")
	}
	top := StandardTopology()
	top.Hosts = append(slices.Clone(top.Hosts), model.Host{Name: "h3", Control: ThirdVTEP, VTEP: ThirdVTEP})
	w, err := NewWorld(top, Case{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Change(func(c *compile.Compiler) { WithEgress(top, c, h.Egress6) }); err != nil {
		t.Fatal(err)
	}
	b.interfaces(t, w.Desired["h1"])
	for _, sub := range cases {
		t.Run(sub.name, func(t *testing.T) {
			sub.run(&externalTest{newServices(t, b, w, model.NetworkKey{Tenant: "blue", Name: "vx"}), t})
		})
	}
}

// externalTest tries services for clients outside.
type externalTest struct {
	services *services
	t        *testing.T
}

// six are the families that the data plane leads outside.
func (s *externalTest) six() []bool {
	if s.services.Egress6 {
		return ipv4and6
	}
	return []bool{false}
}

func clientOutside(v6 bool) netip.Addr {
	if v6 {
		return Outside6
	}
	return Outside
}

// open makes the service, exposed.
func (s *externalTest) open(ids ...model.EndpointID) desired.Service {
	out := s.services.shop(ids...)
	if out.Exposed = true; s.services.top.Network(s.services.key).Encap == model.EncapVLAN {
		out.ExternalPolicy = desired.TrafficLocal
	}
	return out
}

// from makes the first packet of a client's new connection, as the host's stack
// sends it.
func (s *externalTest) from(client netip.Addr, proto model.Protocol) reference.Packet {
	s.services.sport++
	p := reference.Packet{Host: true, Src: client, Dst: vipOf(s.services.top.Network(s.services.key), client.Is6()), Proto: proto, SrcPort: s.services.sport, DstPort: 80}
	if proto == model.ProtoUDP {
		p.DstPort = 53
	} else {
		p.TCPFlags = reference.FlagSYN
	}
	return p
}

// came is reached, by the router.
func (s *externalTest) came(what string, p reference.Packet, ids ...model.EndpointID) model.Endpoint {
	s.t.Helper()
	e, v := s.services.arrived(what, p, ids...)
	if v.Sent.SrcMAC != desired.RouterMAC {
		s.t.Fatalf("%s: %s got it from %s, want it from the router", what, e.Key, v.Sent.SrcMAC)
	}
	if e.Host != "h1" && v.Network != s.services.top.Network(s.services.key).ID {
		s.t.Fatalf("%s: by the tunnel of network %d", what, v.Network)
	}
	return e
}

// back makes a backend's answer: of a container here, or as its host sends it here.
func (s *externalTest) back(p reference.Packet, e model.Endpoint) reference.Packet {
	r := s.services.replyOf(p, e)
	r.DstMAC = desired.RouterMAC
	if e.Host != "h1" {
		r.SrcMAC = desired.RouterMAC
	}
	return r
}

// answersAsService sends a backend's packet and wants it at the host's stack, in the service's
// name.
func (s *externalTest) answersAsService(what string, asked, r reference.Packet) *reference.Packet {
	s.t.Helper()
	v := s.services.Send(s.t, r)
	got := v.Sent
	if !v.Host || got == nil || got.Src != asked.Dst || got.Dst != asked.Src {
		s.t.Fatalf("%s: %s (%+v), want it at the host, from %s to %s", what, v, got, asked.Dst, asked.Src)
	}
	if first := r.Frag == nil || r.Frag.Offset == 0; first && r.Proto.HasPorts() && (got.SrcPort != asked.DstPort || got.DstPort != asked.SrcPort) {
		s.t.Fatalf("%s: the host got ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, asked.DstPort, asked.SrcPort)
	}
	return got
}

func (s *externalTest) translated() {
	for _, network := range []model.NetworkName{"vx", "vl"} {
		s.services.key.Name = network
		backends := []model.EndpointID{"db1", "db2"}
		if network == "vl" {
			backends = []model.EndpointID{"lonely1"}
		}
		for _, id := range backends {
			s.services.applyServices(s.open(id))
			for _, v6 := range s.six() {
				clients := []netip.Addr{clientOutside(v6)}
				if !v6 {
					clients = append(clients, s.services.top.Hosts[0].VTEP)
				}
				for _, client := range clients {
					for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
						what := fmt.Sprintf("%s, %s, %s %s", network, id, client, proto)
						p := s.from(client, proto)
						s.came(what, p, id)
						s.answersAsService(what, p, s.back(p, s.services.at(id)))
						p = laterPacket(p)
						s.came(what+", later", p, id)
						s.answersAsService(what+", later", p, s.back(p, s.services.at(id)))
					}
				}
			}
		}
	}
}

func (s *externalTest) noProvider() {
	refused := func(what string, p reference.Packet) {
		s.t.Helper()
		v := s.services.Send(s.t, p)
		a := v.Answer
		if !nowhere(v) || a == nil || a.Src != p.Dst || a.Dst != p.Src {
			s.t.Errorf("%s: %s (%+v), want a refusal", what, v, a)
			return
		}
		proto, unreachable := model.ProtoICMP, [2]uint8{3, 3}
		if p.Src.Is6() {
			proto, unreachable = model.ProtoICMPv6, [2]uint8{1, 4}
		}
		switch {
		case p.Proto == model.ProtoTCP && a.TCPFlags != reference.FlagRST|reference.FlagACK:
			s.t.Errorf("%s: flags %x, want a reset", what, a.TCPFlags)
		case p.Proto == model.ProtoUDP && (a.Proto != proto || [2]uint8{a.ICMPType, a.ICMPCode} != unreachable):
			s.t.Errorf("%s: protocol %d type %d code %d, want port unreachable", what, a.Proto, a.ICMPType, a.ICMPCode)
		}
	}
	local := s.open("db2")
	local.ExternalPolicy = desired.TrafficLocal
	for what, have := range map[string]desired.Service{
		"nobody": s.open(), "unhealthy": s.services.inState(s.open("db1"), "db1", desired.BackendUnhealthy), "none is here": local,
	} {
		s.services.applyServices(have)
		for _, v6 := range s.six() {
			refused(what, s.from(clientOutside(v6), model.ProtoTCP))
			refused(what, s.from(clientOutside(v6), model.ProtoUDP))
		}
	}
	s.services.applyServices(s.open("db1"))
	p := s.from(Outside, model.ProtoTCP)
	p.DstPort = 81
	refused("no such port", p)
	p.TCPFlags = reference.FlagRST
	if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
		s.t.Errorf("a reset: %s (%+v), want nothing", v, v.Answer)
	}
	p.TCPFlags, p.Damage = reference.FlagSYN, reference.NoHopsLeft
	if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
		s.t.Errorf("no hop left: %s (%+v), want nothing", v, v.Answer)
	}
	s.services.key.Name = "vl"
	s.services.applyServices(s.open("lan2")) // whose host no tunnel leads to
	refused("on a VLAN network, elsewhere", s.from(Outside, model.ProtoTCP))
}

// who: whose address is the cluster's is no client outside; and a service that is
// not exposed has none.
func (s *externalTest) who() {
	s.services.applyServices(s.open("db1"))
	way := s.services.w.Desired["h1"].HostNAT
	var no []netip.Addr
	for _, v6 := range s.six() {
		n := s.services.top.Network(s.services.key)
		if v6 {
			no = append(no, s.services.at("web2").IPv6, s.services.at("db1").IPv6, host6(n, 77), vipOf(n, true), way.Addr6.Prev(),
				netip.MustParseAddr("ff02::1"), netip.MustParseAddr("::1"), netip.MustParseAddr("fe80::7"), netip.MustParseAddr("::ffff:198.51.100.7"))
		} else {
			no = append(no, s.services.at("web2").IPv4, s.services.at("db1").IPv4, host4(n, 77), vipOf(n, false), way.Addr.Prev(),
				netip.MustParseAddr("224.0.0.5"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("0.0.0.1"), netip.MustParseAddr("255.255.255.255"), desired.RouterAddr)
		}
	}
	spoofed := func() uint64 {
		st, err := s.services.drv.Stats(context.Background())
		if err != nil {
			s.t.Fatal(err)
		}
		return st.Drops[driver.DropSpoof]
	}
	before := spoofed()
	for _, a := range no {
		s.services.denied("from "+a.String(), s.from(a, model.ProtoTCP))
	}
	look := time.NewTicker(10 * time.Millisecond) // a data plane may count later
	defer look.Stop()
	for late := time.After(10 * time.Second); spoofed()-before != uint64(len(no)); {
		select {
		case <-look.C:
		case <-late:
			s.t.Fatalf("%d of %d counted as spoofed", spoofed()-before, len(no))
		}
	}
	s.services.applyServices(s.open("db1", "db2"))
	for range 16 { // other hosts do not know which host that is
		for _, v6 := range s.six() {
			own := way.Addr
			if v6 {
				own = way.Addr6
			}
			s.came("from the host's private address", s.from(own, model.ProtoTCP), "db1")
		}
	}
	closed := s.open("db1")
	closed.Exposed = false
	s.services.applyServices(closed)
	s.services.denied("not exposed", s.from(Outside, model.ProtoTCP))
}

// policy: for a local backend, `in` rules see the client's address as an external peer; for
// a remote backend its own host applies them.
func (s *externalTest) policy() {
	rule := func(r model.Rule) Case {
		r.Key = model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}
		r.Direction, r.Priority, r.Action, r.Protocol = model.In, 10, model.Deny, model.ProtoTCP
		return Case{
			Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
			Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: "db"}: {"p1"}}, Rules: []model.Rule{r},
		}
	}
	for _, x := range []struct {
		name string
		rule model.Rule
		deny bool
	}{
		{"anybody", model.Rule{}, true},
		{"the client's address", model.Rule{Addr: netip.PrefixFrom(Outside, 32)}, true},
		{"another address", model.Rule{Addr: netip.PrefixFrom(Outside.Next(), 32)}, false},
		{"the backend's port", model.Rule{Port: 8080}, true},
		{"the service's port", model.Rule{Port: 80}, false},
		{"a group", model.Rule{Group: "web"}, false},
		{"the network", model.Rule{Network: "vx"}, false},
	} {
		for _, id := range []model.EndpointID{"db1", "db2"} {
			what := fmt.Sprintf("%s: %s", x.name, id)
			s.services.applyServices(s.open(id))
			old := s.from(Outside, model.ProtoTCP)
			s.came(what+": before", old, id)
			back := s.back(old, s.services.at(id))
			s.answersAsService(what+": before", old, back)
			back.TCPFlags = reference.FlagACK
			if err := s.services.w.Switch(rule(x.rule)); err != nil {
				s.t.Fatal(err)
			}
			s.services.applyServices(s.open(id))
			if x.deny && id == "db1" {
				s.services.denied(what+": a new one", s.from(Outside, model.ProtoTCP))
				s.services.denied(what+": a living one", laterPacket(old))
				s.services.denied(what+": what comes back", back)
			} else {
				s.came(what+": a new one", s.from(Outside, model.ProtoTCP), id)
				s.came(what+": a living one", laterPacket(old), id)
				s.answersAsService(what+": what comes back", old, back)
			}
			if err := s.services.w.Switch(Case{}); err != nil {
				s.t.Fatal(err)
			}
			s.services.applyServices(s.open(id))
			s.came(what+": the rule is gone", laterPacket(old), id)
		}
	}
}

func (s *externalTest) connectionEnd() {
	both := s.open("db1", "db2")
	other := map[model.EndpointID]model.EndpointID{"db1": "db2", "db2": "db1"}
	for _, v6 := range s.six() {
		s.services.applyServices(both)
		tcp, udp := s.from(clientOutside(v6), model.ProtoTCP), s.from(clientOutside(v6), model.ProtoUDP)
		idTCP, idUDP := s.came("TCP", tcp, "db1", "db2").Key.ID, s.came("UDP", udp, "db1", "db2").Key.ID
		s.answersAsService("TCP", tcp, s.back(tcp, s.services.at(idTCP))) // a connection needs an answer to go on
		s.services.applyServices(s.services.inState(both, idTCP, desired.BackendUnhealthy))
		s.came("TCP goes on", laterPacket(tcp), idTCP)
		s.services.applyServices(s.services.inState(both, idUDP, desired.BackendUnhealthy))
		s.came("UDP is another one's", udp, other[idUDP])
		s.services.applyServices(both)
		s.came("TCP goes on still", laterPacket(tcp), idTCP)
		closed := both
		closed.Exposed = false
		s.services.applyServices(closed)
		s.services.denied("not exposed any more", laterPacket(tcp))
		back := s.back(laterPacket(tcp), s.services.at(idTCP))
		if v := s.services.Send(s.t, back); v.Host && v.Sent != nil && v.Sent.Src == tcp.Dst {
			s.t.Errorf("not exposed any more: %s", v)
		}
		s.services.applyServices(both)
		udp = s.from(clientOutside(v6), model.ProtoUDP)
		idUDP = s.came("UDP, exposed", udp, "db1", "db2").Key.ID
		s.answersAsService("UDP, exposed", udp, s.back(udp, s.services.at(idUDP)))
		s.services.applyServices(closed) // no packet comes meanwhile
		s.services.applyServices(both)
		if v := s.services.Send(s.t, s.back(udp, s.services.at(idUDP))); v.Host && v.Sent != nil && v.Sent.Src == udp.Dst {
			s.t.Errorf("not exposed for a while: %s", v)
		}
	}
}

func (s *externalTest) fragments() {
	id := uint32(7000)
	for _, backend := range []model.EndpointID{"db1", "db2"} {
		s.services.applyServices(s.open(backend))
		for _, v6 := range s.six() {
			what := fmt.Sprintf("%s %s", backend, ipText(v6))
			id++
			first, rest, stray := inParts(s.from(clientOutside(v6), model.ProtoUDP), id)
			if s.services.SkipPacket != nil {
				if why := s.services.SkipPacket(first); why != "" {
					s.t.Skip(why)
				}
			}
			s.services.denied(what+": without its first", stray)
			s.came(what+": first", first, backend)
			if v := s.services.Send(s.t, rest); s.services.receiverOf(what+": last", v).Key.ID != backend || v.Sent.Src != first.Src {
				s.t.Errorf("%s: last: %s", what, v)
			}
			r := s.back(first, s.services.at(backend))
			last := r
			r.Frag = &reference.Fragment{ID: id, More: true}
			last.SrcPort, last.DstPort, last.Frag = 0, 0, &reference.Fragment{ID: id, Offset: 1400}
			s.answersAsService(what+": first back", first, r)
			s.answersAsService(what+": last back", first, last)
		}
	}
}

// errors: ICMP errors both ways.
func (s *externalTest) errors() {
	for _, id := range []model.EndpointID{"db1", "db2"} {
		s.services.applyServices(s.open(id))
		for _, v6 := range s.six() {
			what := fmt.Sprintf("%s %s", id, ipText(v6))
			p := s.from(clientOutside(v6), model.ProtoUDP)
			sent := s.services.Send(s.t, p).Sent
			if sent == nil {
				s.t.Fatalf("%s: nothing was sent", what)
			}
			proto, unreachable := model.ProtoICMP, uint8(3)
			if v6 {
				proto, unreachable = model.ProtoICMPv6, 1
			}
			back := s.back(p, s.services.at(id))
			back.Proto, back.SrcPort, back.DstPort, back.ICMPType, back.ICMPCode = proto, 0, 0, unreachable, 4
			back.Inner = &reference.Packet{Src: sent.Src, Dst: sent.Dst, Proto: sent.Proto, SrcPort: sent.SrcPort, DstPort: sent.DstPort}
			got := s.answersAsService(what+": of the backend", p, back)
			if q := got.Inner; q == nil || q.Src != p.Src || q.Dst != p.Dst || q.SrcPort != p.SrcPort || q.DstPort != p.DstPort {
				s.t.Errorf("%s: of the backend: quotes %+v, want what the client sent", what, q)
			}
			if why := s.services.Differs[ClientsErrors]; why != "" {
				s.t.Logf("%s: %s", ClientsErrors, why)
				continue
			}
			mine := p
			mine.Proto, mine.SrcPort, mine.DstPort, mine.ICMPType, mine.ICMPCode = proto, 0, 0, unreachable, 4
			mine.Inner = &reference.Packet{Src: p.Dst, Dst: p.Src, Proto: p.Proto, SrcPort: p.DstPort, DstPort: p.SrcPort}
			v := s.services.Send(s.t, mine)
			if e := s.services.receiverOf(what+": of the client", v); e.Key.ID != id || v.Sent.Inner == nil || v.Sent.Inner.Src != sent.Dst || v.Sent.Inner.SrcPort != sent.DstPort {
				s.t.Errorf("%s: of the client: %s got %+v", what, e.Key, v.Sent.Inner)
			}
			mine.Inner.DstPort++
			s.services.denied(what+": about nothing that is known", mine)
		}
	}
}
