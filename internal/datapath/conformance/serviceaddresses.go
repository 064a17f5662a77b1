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

// separateDomains: a virtual address is valid in its own domain only. Direct connections to a backend
// and their answers are not translated.
func (s *serviceCases) separateDomains() {
	s.services.applyServices(s.services.shop("db1"))
	stranger := s.services.top.Endpoint(model.EndpointKey{Network: model.NetworkKey{Tenant: "red", Name: "vx"}, ID: "web1"})
	client := s.services.at("web1")
	for _, v6 := range ipv4and6 {
		p := s.services.ask(client, model.ProtoTCP, v6)
		s.services.reached(ipText(v6)+": in the domain", p, "db1")
		own := p.Src
		if p = between(s.services.top, stranger, stranger, model.ProtoTCP, v6, p.SrcPort, 80); p.Src.IsValid() {
			p.DstMAC, p.Dst = desired.RouterMAC, vipOf(s.services.top.Network(s.services.key), v6)
			if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: of another tenant (%s, the client has %s): %s (%+v), want nothing", ipText(v6), p.Src, own, v, v.Answer)
			}
		}
		if p = s.services.ask(client, model.ProtoTCP, v6); v6 {
			p.Dst = netip.AddrFrom16(vipOf(s.services.top.Network(s.services.key), false).As16())
			s.services.denied("the IPv4-mapped virtual address", p)
		}
		db1 := s.services.at("db1")
		direct := between(s.services.top, client, db1, model.ProtoTCP, v6, s.services.sport+1000, 8080)
		if v := s.services.Send(s.t, direct); !slices.Equal(v.Ports, []string{compile.IfName(db1.Key)}) {
			s.t.Fatalf("%s: to the backend itself: %s", ipText(v6), v)
		}
		v := s.services.Send(s.t, s.services.replyOf(direct, db1))
		if got := v.Sent; !slices.Equal(v.Ports, []string{compile.IfName(client.Key)}) || got != nil && (got.Src != direct.Dst || got.SrcPort != 8080) {
			s.t.Errorf("%s: the backend's own answer: %s (%+v), want it as it is", ipText(v6), v, got)
		}
	}
}

// claimed: an endpoint's address is no service's, and of two services with one
// address the first by key has it, for as long as it is there. With the address a
// service loses its connections.
func (s *serviceCases) claimed() {
	client, db1 := s.services.at("web1"), s.services.at("db1")
	taken := s.services.shop("web2")
	taken.IPv4, taken.IPv6 = db1.IPv4, db1.IPv6
	s.services.applyServices(taken)
	for _, v6 := range ipv4and6 {
		p := between(s.services.top, client, db1, model.ProtoTCP, v6, 31000, 80)
		v := s.services.Send(s.t, p)
		if got := v.Sent; !slices.Equal(v.Ports, []string{compile.IfName(db1.Key)}) || got != nil && (got.Dst != p.Dst || got.DstPort != 80) {
			s.t.Errorf("%s: to an endpoint whose address a service wants: %s (%+v)", ipText(v6), v, got)
		}
	}
	first, second := s.services.shop("db1"), s.services.shop("web2")
	second.Key.Name = "zoo"
	var living []reference.Packet
	for i, x := range []struct {
		have []desired.Service
		id   model.EndpointID
	}{{[]desired.Service{first, second}, "db1"}, {[]desired.Service{second}, "web2"}, {[]desired.Service{second, first}, "db1"}} {
		s.services.applyServices(x.have...)
		for _, p := range living { // of who has the address no more
			what := fmt.Sprintf("%d: a connection from before", i)
			if e := s.services.receiverOf(what, s.services.Send(s.t, p)); e.Key.ID != x.id {
				s.t.Errorf("%s: %s got it, want %s", what, e.Key, x.id)
			}
		}
		for _, v6 := range ipv4and6 {
			what := fmt.Sprintf("%d, %s: two services with one address", i, ipText(v6))
			p := s.services.ask(client, model.ProtoTCP, v6)
			to := s.services.reached(what, p, x.id)
			s.services.answered(what, client, p, s.services.replyOf(p, to))
			living = append(living, laterPacket(p))
		}
	}
}

// changedPorts: what becomes of connections when their port leads elsewhere, or goes.
func (s *serviceCases) changedPorts() {
	client := s.services.at("web1")
	for _, v6 := range ipv4and6 {
		s.services.applyServices(s.services.shop("db1"))
		tcp, udp := s.services.ask(client, model.ProtoTCP, v6), s.services.ask(client, model.ProtoUDP, v6)
		s.services.reached("TCP", tcp, "db1")
		s.services.answered("TCP", client, tcp, s.services.replyOf(tcp, s.services.at("db1")))
		s.services.reached("UDP", udp, "db1")
		moved := s.services.shop("db1")
		moved.Ports = []desired.ServicePort{{Protocol: model.ProtoTCP, Port: 80, Backend: 8081}, {Protocol: model.ProtoUDP, Port: 53, Backend: 5354}}
		s.services.applyServices(moved)
		s.services.reached("TCP, its port leads elsewhere", laterPacket(tcp), "db1") // to 8080 still
		for _, p := range []struct {
			what string
			p    reference.Packet
			port uint16
		}{{"UDP, its port leads elsewhere", udp, 5354}, {"a new one", s.services.ask(client, model.ProtoTCP, v6), 8081}} {
			v := s.services.Send(s.t, p.p)
			if s.services.receiverOf(p.what, v); v.Sent.DstPort != p.port {
				s.t.Errorf("%s, %s: to port %d, want %d", ipText(v6), p.what, v.Sent.DstPort, p.port)
			}
		}
		gone := s.services.shop("db1")
		gone.Ports = gone.Ports[1:]
		s.services.applyServices(gone)
		s.services.denied("TCP, its port has gone", laterPacket(tcp))
		s.services.applyServices(s.services.shop("db1"))
		known := s.services.ask(client, model.ProtoTCP, v6)
		s.services.reached("TCP", known, "db1")
		s.services.answered("TCP", client, known, s.services.replyOf(known, s.services.at("db1")))
		for range 3 { // what has been seen takes a shorter way
			s.services.reached("TCP, known", laterPacket(known), "db1")
		}
		closed := s.services.shop() // as a deleted service is for a while
		closed.Ports = nil
		for _, closed.Exposed = range []bool{false, true} {
			s.services.applyServices(closed)
			s.services.denied("TCP, its service is closed", laterPacket(known))
			s.services.denied("TCP, to a closed service", s.services.ask(client, model.ProtoTCP, v6))
		}
		noAddress := s.services.shop("db1")
		if v6 {
			noAddress.IPv6 = netip.Addr{}
		} else {
			noAddress.IPv4 = netip.Addr{}
		}
		for what, less := range map[string]desired.Service{"port": gone, "address": noAddress} {
			s.services.applyServices(s.services.shop("db1"))
			p := s.services.ask(client, model.ProtoTCP, v6)
			s.services.reached("its "+what+" is there", p, "db1")
			s.services.answered("its "+what+" is there", client, p, s.services.replyOf(p, s.services.at("db1")))
			s.services.applyServices(less) // no packet comes meanwhile
			s.services.applyServices(s.services.shop("db2"))
			s.services.reached("its "+what+" has gone and is back, for another backend", laterPacket(p), "db2")
		}
	}
}

// morePorts: connections go on with their backend when the service has other ports and
// backends besides.
func (s *serviceCases) morePorts() {
	client := s.services.at("web1")
	ids := []model.EndpointID{"db1", "db2", "web2"}
	for _, v6 := range ipv4and6 {
		for _, id := range ids {
			for _, proto := range []model.Protocol{model.ProtoUDP, model.ProtoTCP} {
				s.services.applyServices(s.services.shop(ids...))
				p := s.services.ask(client, proto, v6)
				what := fmt.Sprintf("%s of %s", proto, id)
				for range 100 {
					if s.services.receiverOf(what, s.services.Send(s.t, p)).Key.ID == id {
						break
					}
					p = s.services.ask(client, proto, v6)
				}
				s.services.answered(what, client, p, s.services.replyOf(p, s.services.at(id)))
				more := s.services.shop(id, "solo1")
				more.Ports = append(more.Ports, desired.ServicePort{Protocol: model.ProtoTCP, Port: 81, Backend: 8081})
				slices.SortFunc(more.Ports, desired.CompareServicePorts)
				s.services.applyServices(more)
				what += ", another port besides"
				s.services.answered(what, client, p, s.services.replyOf(p, s.services.at(id)))
				s.services.reached(what, laterPacket(p), id)
			}
		}
	}
}

// replaced: a connection does not go on with another endpoint of its client's or its
// backend's address.
func (s *serviceCases) replaced() {
	both := s.services.shop("db1", "db2")
	for _, id := range []model.EndpointID{"web1", "db1"} {
		client, old := s.services.at("web1"), s.services.at(id)
		s.services.applyServices(s.services.shop("db1"))
		p := s.services.ask(client, model.ProtoTCP, false)
		s.services.reached("at first", p, "db1")
		s.services.answered("at first", client, p, s.services.replyOf(p, s.services.at("db1")))
		s.services.applyServices(s.services.shop("db2"))
		s.services.reached("no backend any more", laterPacket(p), "db1")
		if err := s.services.w.Change(func(c *compile.Compiler) { c.DeleteEndpoint(old.Key) }); err != nil {
			s.t.Fatal(err)
		}
		s.services.applyServices(s.services.shop("db2"))
		if err := s.services.w.Change(func(c *compile.Compiler) { c.SetEndpoint(old) }); err != nil {
			s.t.Fatal(err)
		}
		s.services.applyServices(s.services.shop("db2"))
		s.services.reached(string(id)+" has gone and come", laterPacket(p), "db2")
	}
	s.services.applyServices(both)
}

// elsewhere: a virtual address is neither resolved nor reached through a tunnel.
func (s *serviceCases) elsewhere() {
	s.services.applyServices(s.services.shop("db1"))
	far := s.services.at("db2")
	for _, v6 := range ipv4and6 {
		vip := vipOf(s.services.top.Network(s.services.key), v6)
		asked := origin(s.services.top, far)
		asked.SrcMAC, asked.DstMAC = far.MAC, reference.Broadcast
		if asked.ARP = (&reference.ARP{Op: reference.ARPRequest, SenderMAC: far.MAC, SenderIP: far.IPv4, TargetIP: vip}); v6 {
			group, mac := reference.SolicitedNode(vip)
			asked.ARP, asked.DstMAC, asked.Src, asked.Dst, asked.Proto, asked.ICMPType = nil, mac, far.IPv6, group, model.ProtoICMPv6, reference.NDNeighborSolicit
			asked.ND = &reference.ND{Target: vip, LinkAddr: far.MAC, HasLink: true}
		}
		if v := s.services.Send(s.t, asked); v.Answer != nil {
			s.t.Errorf("%s: who has the virtual address, by a tunnel: %+v, want no answer", ipText(v6), v.Answer)
		}
		p := between(s.services.top, far, s.services.at("db1"), model.ProtoTCP, v6, 31000, 80)
		p.DstMAC, p.Dst = desired.RouterMAC, vip
		if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: to the virtual address by a tunnel: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
	}
}
