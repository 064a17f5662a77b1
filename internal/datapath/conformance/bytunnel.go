package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// testClientsByTunnel: containers here answer clients outside by the host that these
// came by.
func testClientsByTunnel(t *testing.T, h Harness) {
	t.Helper()
	tryOutside(t, h, func(c driver.Capabilities) bool { return c.ClientsByTunnel }, []outsideCase{
		{"Answered", (*externalTest).byTunnel},
		{"Refused", (*externalTest).notByTunnel},
	})
}

// tunnelled makes a packet of a client outside as another host sends it to a
// container here.
func (s *externalTest) tunnelled(by netip.Addr, client netip.Addr, to model.Endpoint, proto model.Protocol) reference.Packet {
	p := s.from(client, proto)
	p.Host, p.VTEP, p.Network = false, by, s.services.top.Network(s.services.key).ID
	p.SrcMAC, p.DstMAC, p.Dst, p.DstPort = desired.RouterMAC, to.MAC, to.IPv4, 8080
	if client.Is6() {
		p.Dst = to.IPv6
	}
	return p
}

// byTunnel: what a client outside sent by another host is answered by that host,
// whatever else the container sends goes its own way; policy is judged here.
func (s *externalTest) byTunnel() {
	web := s.services.at("web1")
	s.services.applyServices()
	delivered := func(what string, p reference.Packet) {
		s.t.Helper()
		if v := s.services.Send(s.t, p); !slices.Equal(v.Ports, []string{compile.IfName(web.Key)}) || len(v.VTEPs) > 0 || v.Host {
			s.t.Fatalf("%s: %s, want it at %s", what, v, web.Key)
		}
	}
	answered := func(what string, p reference.Packet, by netip.Addr) {
		s.t.Helper()
		r := s.services.replyOf(p, web)
		r.SrcPort, r.DstMAC = p.DstPort, desired.RouterMAC
		v := s.services.Send(s.t, r)
		if !slices.Equal(v.VTEPs, []netip.Addr{by}) || len(v.Ports) > 0 || v.Host || v.Network != p.Network || v.Sent == nil {
			s.t.Fatalf("%s: %s, want it back by %s", what, v, by)
		}
		if q := v.Sent; q.SrcMAC != desired.RouterMAC || q.DstMAC != desired.RouterMAC || q.Src != r.Src || q.Dst != r.Dst || q.SrcPort != r.SrcPort || q.DstPort != r.DstPort {
			s.t.Fatalf("%s: back as %+v", what, q)
		}
	}
	for _, v6 := range ipv4and6 {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			what := fmt.Sprintf("%s %s", ipText(v6), proto)
			p := s.tunnelled(s.services.top.Hosts[1].VTEP, clientOutside(v6), web, proto)
			delivered(what, p)
			answered(what, p, p.VTEP)
			p = laterPacket(p)
			delivered(what+", later", p)
			answered(what+", later", p, p.VTEP)
			answered(what+", once more", p, p.VTEP)
			p.VTEP = ThirdVTEP
			delivered(what+", by another host", p)
			answered(what+", by another host", p, ThirdVTEP)
			if v6 && !s.services.Egress6 {
				continue
			}
			own := between(s.services.top, web, web, proto, v6, s.services.sport, 8080) // a connection of its own to the client
			own.Dst, own.DstMAC = p.Src, desired.RouterMAC
			if v := s.services.Send(s.t, own); !v.Host || len(v.VTEPs) > 0 {
				s.t.Errorf("%s: the container's own connection: %s, want it by egress", what, v)
			}
		}
	}
	old := s.tunnelled(s.services.top.Hosts[1].VTEP, Outside, web, model.ProtoTCP)
	delivered("before a rule", old)
	if err := s.services.w.Switch(Case{
		Policies: []model.ContivPolicy{{Key: model.PolicyKey{Tenant: "blue", Name: "p1"}}},
		Attach:   map[model.GroupKey][]model.PolicyName{{Tenant: "blue", Name: "web"}: {"p1"}},
		Rules: []model.Rule{{
			Key: model.RuleKey{Tenant: "blue", Policy: "p1", Rule: "1"}, Direction: model.In, Priority: 10, Action: model.Deny,
			Protocol: model.ProtoTCP, Addr: netip.PrefixFrom(Outside, 32),
		}},
	}); err != nil {
		s.t.Fatal(err)
	}
	s.services.applyServices()
	s.services.denied("a rule denies a living one", laterPacket(old))
	s.services.denied("a rule denies a new one", s.tunnelled(s.services.top.Hosts[1].VTEP, Outside, web, model.ProtoTCP))
	delivered("another client", s.tunnelled(s.services.top.Hosts[1].VTEP, Outside.Next(), web, model.ProtoTCP))
}

// notByTunnel: what no host's router sends is not taken for it.
func (s *externalTest) notByTunnel() {
	s.services.applyServices()
	web, h2 := s.services.at("web1"), s.services.top.Hosts[1].VTEP
	n := s.services.top.Network(s.services.key)
	try := func(what string, edit func(*reference.Packet)) {
		s.t.Helper()
		p := s.tunnelled(h2, Outside, web, model.ProtoTCP)
		edit(&p)
		s.services.denied(what, p)
	}
	try("by a stranger", func(p *reference.Packet) { p.VTEP = netip.MustParseAddr("192.168.7.9") })
	try("to nobody", func(p *reference.Packet) { p.Dst = host4(n, 77) })
	try("to another one's address", func(p *reference.Packet) { p.Dst = s.services.at("db1").IPv4 })
	try("to an endpoint elsewhere", func(p *reference.Packet) { p.Dst, p.DstMAC = s.services.at("db2").IPv4, s.services.at("db2").MAC })
	try("to everybody", func(p *reference.Packet) { p.DstMAC = reference.Broadcast })
	for _, a := range []netip.Addr{
		s.services.at("db2").IPv4, s.services.at("db1").IPv4, host4(n, 77), s.services.w.Desired["h1"].HostNAT.Addr,
		netip.MustParseAddr("224.0.0.5"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("0.0.0.1"),
	} {
		try("from "+a.String(), func(p *reference.Packet) { p.Src = a })
	}
	for what, kind := range map[string]uint8{"neighbor solicitation": reference.NDNeighborSolicit, "neighbor advertisement": reference.NDNeighborAdvert} {
		try(what, func(p *reference.Packet) {
			*p = reference.Packet{
				VTEP: h2, Network: n.ID, SrcMAC: desired.RouterMAC, DstMAC: web.MAC, Src: Outside6, Dst: web.IPv6, Proto: model.ProtoICMPv6, ICMPType: kind,
				ND: &reference.ND{Target: map[uint8]netip.Addr{reference.NDNeighborSolicit: web.IPv6, reference.NDNeighborAdvert: Outside6}[kind], LinkAddr: desired.RouterMAC, HasLink: true},
			}
		})
	}
	try("ARP", func(p *reference.Packet) {
		*p = reference.Packet{VTEP: h2, Network: n.ID, SrcMAC: desired.RouterMAC, DstMAC: web.MAC, ARP: &reference.ARP{
			Op: reference.ARPRequest, SenderMAC: desired.RouterMAC, SenderIP: Outside, TargetIP: web.IPv4,
		}}
	})
}

// notBack: to the router only backends send, in a connection that was translated here.
func (s *externalTest) notBack() {
	s.services.applyServices(s.open("db2"))
	asked := s.from(Outside, model.ProtoTCP)
	s.came("to a backend elsewhere", asked, "db2")
	for what, edit := range map[string]func(*reference.Packet){
		"of a stranger's host":     func(p *reference.Packet) { p.VTEP = ThirdVTEP },
		"of another backend":       func(p *reference.Packet) { p.Src = s.services.at("web2").IPv4 },
		"of nothing that is known": func(p *reference.Packet) { p.DstPort++ },
		"a request":                func(p *reference.Packet) { p.TCPFlags = reference.FlagSYN },
	} {
		r := s.back(asked, s.services.at("db2"))
		edit(&r)
		s.services.denied(what, r)
	}
	s.services.sport++
	own := between(s.services.top, s.services.at("web1"), s.services.at("db2"), model.ProtoTCP, false, s.services.sport, 8080)
	if v := s.services.Send(s.t, own); !slices.Equal(v.VTEPs, []netip.Addr{s.services.top.Hosts[1].VTEP}) {
		s.t.Fatalf("a container's own connection: %s", v)
	}
	r := s.back(asked, s.services.at("db2"))
	r.Dst, r.DstPort = own.Src, own.SrcPort
	s.services.denied("in a container's own connection", r)
	s.answersAsService("the answer itself", asked, s.back(asked, s.services.at("db2")))
}
