package conformance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// apart: a virtual address is valid in its own domain only. Direct connections to a backend
// and their answers are not translated.
func (s *services) apart() {
	s.have(s.shop("db1"))
	stranger := s.top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "red", Name: "vx"}, ID: "web1"})
	client := s.at("web1")
	for _, v6 := range ipv4and6 {
		p := s.ask(client, model.ProtoTCP, v6)
		s.reached(ipText(v6)+": in the domain", p, "db1")
		own := p.Src
		if p = between(s.top, stranger, stranger, model.ProtoTCP, v6, p.SrcPort, 80); p.Src.IsValid() {
			p.DstMAC, p.Dst = desired.RouterMAC, vipOf(s.top.Network(s.key), v6)
			if v := s.Send(s.t, p); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: of another tenant (%s, the client has %s): %s (%+v), want nothing", ipText(v6), p.Src, own, v, v.Answer)
			}
		}
		if p = s.ask(client, model.ProtoTCP, v6); v6 {
			p.Dst = netip.AddrFrom16(vipOf(s.top.Network(s.key), false).As16())
			s.denied("the IPv4-mapped virtual address", p)
		}
		db1 := s.at("db1")
		direct := between(s.top, client, db1, model.ProtoTCP, v6, s.sport+1000, 8080)
		if v := s.Send(s.t, direct); !slices.Equal(v.Ports, []string{compile.IfName(db1.Key)}) {
			s.t.Fatalf("%s: to the backend itself: %s", ipText(v6), v)
		}
		v := s.Send(s.t, s.replyOf(direct, db1))
		if got := v.Sent; !slices.Equal(v.Ports, []string{compile.IfName(client.Key)}) || got != nil && (got.Src != direct.Dst || got.SrcPort != 8080) {
			s.t.Errorf("%s: the backend's own answer: %s (%+v), want it as it is", ipText(v6), v, got)
		}
	}
}

// claimed: an endpoint's address is no service's, and of two services with one
// address the first by key has it, for as long as it is there. With the address a
// service loses its connections.
func (s *services) claimed() {
	client, db1 := s.at("web1"), s.at("db1")
	taken := s.shop("web2")
	taken.IPv4, taken.IPv6 = db1.IPv4, db1.IPv6
	s.have(taken)
	for _, v6 := range ipv4and6 {
		p := between(s.top, client, db1, model.ProtoTCP, v6, 31000, 80)
		v := s.Send(s.t, p)
		if got := v.Sent; !slices.Equal(v.Ports, []string{compile.IfName(db1.Key)}) || got != nil && (got.Dst != p.Dst || got.DstPort != 80) {
			s.t.Errorf("%s: to an endpoint whose address a service wants: %s (%+v)", ipText(v6), v, got)
		}
	}
	first, second := s.shop("db1"), s.shop("web2")
	second.Key.Name = "zoo"
	var living []reference.Packet
	for i, x := range []struct {
		have []desired.Service
		id   model.EndpointID
	}{{[]desired.Service{first, second}, "db1"}, {[]desired.Service{second}, "web2"}, {[]desired.Service{second, first}, "db1"}} {
		s.have(x.have...)
		for _, p := range living { // of who has the address no more
			what := fmt.Sprintf("%d: a connection from before", i)
			if e := s.cameTo(what, s.Send(s.t, p)); e.Key.ID != x.id {
				s.t.Errorf("%s: %s got it, want %s", what, e.Key, x.id)
			}
		}
		for _, v6 := range ipv4and6 {
			what := fmt.Sprintf("%d, %s: two services with one address", i, ipText(v6))
			p := s.ask(client, model.ProtoTCP, v6)
			to := s.reached(what, p, x.id)
			s.answered(what, client, p, s.replyOf(p, to))
			living = append(living, goOn(p))
		}
	}
}

// changedPorts: what becomes of connections when their port leads elsewhere, or goes.
func (s *services) changedPorts() {
	client := s.at("web1")
	for _, v6 := range ipv4and6 {
		s.have(s.shop("db1"))
		tcp, udp := s.ask(client, model.ProtoTCP, v6), s.ask(client, model.ProtoUDP, v6)
		s.reached("TCP", tcp, "db1")
		s.answered("TCP", client, tcp, s.replyOf(tcp, s.at("db1")))
		s.reached("UDP", udp, "db1")
		moved := s.shop("db1")
		moved.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8081}, {Protocol: model.ProtoUDP, Port: 53, Backend: 5354}}
		s.have(moved)
		s.reached("TCP, its port leads elsewhere", goOn(tcp), "db1") // to 8080 still
		for _, p := range []struct {
			what string
			p    reference.Packet
			port uint16
		}{{"UDP, its port leads elsewhere", udp, 5354}, {"a new one", s.ask(client, model.ProtoTCP, v6), 8081}} {
			v := s.Send(s.t, p.p)
			if s.cameTo(p.what, v); v.Sent.DstPort != p.port {
				s.t.Errorf("%s, %s: to port %d, want %d", ipText(v6), p.what, v.Sent.DstPort, p.port)
			}
		}
		gone := s.shop("db1")
		gone.Ports = gone.Ports[1:]
		s.have(gone)
		s.denied("TCP, its port has gone", goOn(tcp))
		s.have(s.shop("db1"))
		known := s.ask(client, model.ProtoTCP, v6)
		s.reached("TCP", known, "db1")
		s.answered("TCP", client, known, s.replyOf(known, s.at("db1")))
		for range 3 { // what has been seen takes a shorter way
			s.reached("TCP, known", goOn(known), "db1")
		}
		closed := s.shop() // as a deleted service is for a while
		closed.Ports = nil
		for _, closed.Exposed = range []bool{false, true} {
			s.have(closed)
			s.denied("TCP, its service is closed", goOn(known))
			s.denied("TCP, to a closed service", s.ask(client, model.ProtoTCP, v6))
		}
		noAddress := s.shop("db1")
		if v6 {
			noAddress.IPv6 = netip.Addr{}
		} else {
			noAddress.IPv4 = netip.Addr{}
		}
		for what, less := range map[string]desired.Service{"port": gone, "address": noAddress} {
			s.have(s.shop("db1"))
			p := s.ask(client, model.ProtoTCP, v6)
			s.reached("its "+what+" is there", p, "db1")
			s.answered("its "+what+" is there", client, p, s.replyOf(p, s.at("db1")))
			s.have(less) // no packet comes meanwhile
			s.have(s.shop("db2"))
			s.reached("its "+what+" has gone and is back, for another backend", goOn(p), "db2")
		}
	}
}

// morePorts: connections go on with their backend when the service has other ports and
// backends besides.
func (s *services) morePorts() {
	client := s.at("web1")
	ids := []model.EndpointID{"db1", "db2", "web2"}
	for _, v6 := range ipv4and6 {
		for _, id := range ids {
			for _, proto := range []model.Protocol{model.ProtoUDP, model.ProtoTCP} {
				s.have(s.shop(ids...))
				p := s.ask(client, proto, v6)
				what := fmt.Sprintf("%s of %s", proto, id)
				for range 100 {
					if s.cameTo(what, s.Send(s.t, p)).Key.ID == id {
						break
					}
					p = s.ask(client, proto, v6)
				}
				s.answered(what, client, p, s.replyOf(p, s.at(id)))
				more := s.shop(id, "solo1")
				more.Ports = append(more.Ports, desired.ServicePort{Protocol: model.ProtoTCP, Port: 81, Backend: 8081})
				slices.SortFunc(more.Ports, desired.CompareServicePorts)
				s.have(more)
				what += ", another port besides"
				s.answered(what, client, p, s.replyOf(p, s.at(id)))
				s.reached(what, goOn(p), id)
			}
		}
	}
}

// replaced: a connection does not go on with another endpoint of its client's or its
// backend's address.
func (s *services) replaced() {
	both := s.shop("db1", "db2")
	for _, id := range []model.EndpointID{"web1", "db1"} {
		client, old := s.at("web1"), s.at(id)
		s.have(s.shop("db1"))
		p := s.ask(client, model.ProtoTCP, false)
		s.reached("at first", p, "db1")
		s.answered("at first", client, p, s.replyOf(p, s.at("db1")))
		s.have(s.shop("db2"))
		s.reached("no backend any more", goOn(p), "db1")
		if err := s.w.Change(func(c *compile.Compiler) { c.DeleteEndpoint(old.Key) }); err != nil {
			s.t.Fatal(err)
		}
		s.have(s.shop("db2"))
		if err := s.w.Change(func(c *compile.Compiler) { c.SetEndpoint(old) }); err != nil {
			s.t.Fatal(err)
		}
		s.have(s.shop("db2"))
		s.reached(string(id)+" has gone and come", goOn(p), "db2")
	}
	s.have(both)
}

// elsewhere: a virtual address is neither resolved nor reached through a tunnel.
func (s *services) elsewhere() {
	s.have(s.shop("db1"))
	far := s.at("db2")
	for _, v6 := range ipv4and6 {
		vip := vipOf(s.top.Network(s.key), v6)
		asked := origin(s.top, far)
		asked.SrcMAC, asked.DstMAC = far.MAC, reference.Broadcast
		if asked.ARP = (&reference.ARP{Op: reference.ARPRequest, SenderMAC: far.MAC, SenderIP: far.IPv4, TargetIP: vip}); v6 {
			group, mac := reference.SolicitedNode(vip)
			asked.ARP, asked.DstMAC, asked.Src, asked.Dst, asked.Proto, asked.ICMPType = nil, mac, far.IPv6, group, model.ProtoICMPv6, reference.NDNeighborSolicit
			asked.ND = &reference.ND{Target: vip, LinkAddr: far.MAC, HasLink: true}
		}
		if v := s.Send(s.t, asked); v.Answer != nil {
			s.t.Errorf("%s: who has the virtual address, by a tunnel: %+v, want no answer", ipText(v6), v.Answer)
		}
		p := between(s.top, far, s.at("db1"), model.ProtoTCP, v6, 31000, 80)
		p.DstMAC, p.Dst = desired.RouterMAC, vip
		if v := s.Send(s.t, p); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: to the virtual address by a tunnel: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
	}
}
