package conformance

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// with changes a backend of a service.
func (s *services) with(of desired.Service, id model.EndpointID, change func(*desired.Backend)) desired.Service {
	old, _ := of.Backends.Get(s.at(id).Key)
	b := *old
	change(&b)
	of.Backends = of.Backends.Set(s.at(id).Key, &b)
	return of
}

// spreadOver wants new connections to reach each of some backends, and no other.
func (s *services) spreadOver(what string, client model.Endpoint, v6 bool, ids ...model.EndpointID) {
	s.t.Helper()
	got := map[model.EndpointID]bool{}
	for i := range 200 {
		p := s.ask(client, model.ProtoTCP, v6)
		got[s.reached(what, p, ids...).Key.ID] = true
		if i >= 20 && len(got) == len(ids) {
			return
		}
	}
	s.t.Fatalf("%s: connections went to %v, want some for each of %s", what, got, ids)
}

// leaving: a leaving backend gets new connections only while the traffic policy finds no
// active one; it keeps its connections.
func (s *serviceCases) leaving() {
	client := s.services.at("web1")
	both := s.services.shop("db1", "db2") // db2 is on the other host
	leaves := func(of desired.Service, id model.EndpointID) desired.Service {
		return s.services.inState(of, id, desired.BackendLeaving)
	}
	for _, v6 := range ipv4and6 {
		s.services.applyServices(s.services.shop("db1"))
		tcp, udp := s.services.ask(client, model.ProtoTCP, v6), s.services.ask(client, model.ProtoUDP, v6)
		for _, p := range []reference.Packet{tcp, udp} {
			s.services.reached("at first", p, "db1")
			s.services.answered("at first", client, p, s.services.replyOf(p, s.services.at("db1")))
		}
		s.services.applyServices(leaves(both, "db1"))
		s.services.reached("TCP of who leaves", laterPacket(tcp), "db1")
		s.services.reached("UDP of who leaves", laterPacket(udp), "db1")
		s.services.spreadOver("one is active", client, v6, "db2")
		s.services.applyServices(leaves(leaves(both, "db1"), "db2"))
		s.services.spreadOver("both leave", client, v6, "db1", "db2")
		local := leaves(both, "db1")
		local.InternalPolicy = desired.TrafficLocal
		s.services.applyServices(local)
		s.services.spreadOver("the only one here leaves", client, v6, "db1")
		s.services.applyServices(s.services.inState(leaves(both, "db1"), "db2", desired.BackendDraining))
		s.services.spreadOver("one leaves, one drains", client, v6, "db1")
	}
	sticks := leaves(both, "db1")
	sticks.Affinity = desired.MaxAffinity
	s.services.applyServices(leaves(sticks, "db2"))
	stays := s.services.reached("with affinity, both leave", s.services.ask(client, model.ProtoTCP, false), "db1", "db2").Key.ID
	s.services.applyServices(s.services.inState(leaves(sticks, "db2"), stays, desired.BackendActive))
	s.services.spreadOver("with affinity, its own has come back", client, false, stays)
	s.services.applyServices(s.services.inState(leaves(leaves(sticks, "db2"), stays), other(stays), desired.BackendActive))
	s.services.spreadOver("with affinity, the other one is active", client, false, other(stays))
}

// other is the other one of db1 and db2.
func other(id model.EndpointID) model.EndpointID {
	if id == "db1" {
		return "db2"
	}
	return "db1"
}

// drainingElsewhere: while all backends are on other hosts, clients get no answer; without any backend
// they are refused.
func (s *serviceCases) drainingElsewhere() {
	client := s.services.at("web1")
	of := s.services.shop("db2")
	of.InternalPolicy = desired.TrafficLocalDrop
	for _, v6 := range ipv4and6 {
		for _, x := range []struct {
			what    string
			have    desired.Service
			refused bool
		}{
			{"somebody elsewhere", of, false},
			{"somebody elsewhere, who leaves", s.services.inState(of, "db2", desired.BackendLeaving), false},
			{"nobody", s.services.inState(of, "db2", desired.BackendUnhealthy), true},
		} {
			s.services.applyServices(x.have)
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := fmt.Sprintf("%s, %s, protocol %d", x.what, ipText(v6), proto)
				p := s.services.ask(client, proto, v6)
				if v := s.services.Send(s.t, p); !nowhere(v) || (v.Answer != nil) != x.refused {
					s.t.Errorf("%s: %s (%+v), want it refused: %v", what, v, v.Answer, x.refused)
				}
			}
		}
		here := s.services.shop("db1", "db2")
		here.InternalPolicy = desired.TrafficLocalDrop
		s.services.applyServices(here)
		s.services.spreadOver("somebody here", client, v6, "db1")
		p := s.services.ask(client, model.ProtoTCP, v6)
		if p.DstPort++; s.services.Send(s.t, p).Answer == nil {
			s.t.Errorf("%s: a port that it has not: no answer, want it refused", ipText(v6))
		}
	}
}

// ownPorts: a backend may have a port of its own.
func (s *serviceCases) ownPorts() {
	client := s.services.at("web1")
	of := func(port uint16) desired.Service {
		x := s.services.with(s.services.shop("db1", "db2"), "db1", func(b *desired.Backend) { b.Port = port })
		x.Ports = x.Ports[:1]
		x.Ports = append(x.Ports, desired.ServicePort{Protocol: model.ProtoUDP, Port: 53, Backend: 8080})
		return x
	}
	for _, v6 := range ipv4and6 {
		s.services.applyServices(of(9090))
		living := map[model.Protocol]reference.Packet{}
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			got := map[model.EndpointID]uint16{}
			for range 100 {
				p := s.services.ask(client, proto, v6)
				v := s.services.Send(s.t, p)
				e := s.services.receiverOf("asked", v)
				if got[e.Key.ID] = v.Sent.DstPort; e.Key.ID == "db1" {
					if r := s.services.replyOf(p, e); living[proto].Src == (netip.Addr{}) {
						r.SrcPort = 9090
						s.services.answered("by its own port", client, p, r)
						s.services.Send(s.t, laterPacket(p)) // else half open, which ends by itself before long
						living[proto] = p
					}
				}
			}
			if got["db1"] != 9090 || got["db2"] != 8080 {
				s.t.Fatalf("%s, protocol %d: at ports %v, want db1 at 9090 and db2 at 8080", ipText(v6), proto, got)
			}
		}
		s.services.applyServices(of(9091))
		if v := s.services.Send(s.t, laterPacket(living[model.ProtoTCP])); v.Sent == nil || v.Sent.DstPort != 9090 {
			s.t.Errorf("%s: TCP when the port is another one: %s (%+v), want it at 9090 still", ipText(v6), v, v.Sent)
		}
		v := s.services.Send(s.t, laterPacket(living[model.ProtoUDP]))
		if e := s.services.receiverOf("UDP when the port is another one", v); v.Sent.DstPort == 9090 {
			s.t.Errorf("%s: UDP when the port is another one: %s at 9090 still", ipText(v6), e.Key)
		}
	}
}

// families: a backend may serve the two families otherwise, in state, nearness and port.
func (s *serviceCases) families() {
	client := s.services.at("web1")
	both := s.services.shop("db1", "db2")
	serves := func(of desired.Service, id model.EndpointID, v6 bool, how desired.Serving) desired.Service {
		return s.services.with(of, id, func(b *desired.Backend) { b.Serve(b.Addr(v6), how) })
	}
	for _, v6 := range ipv4and6 {
		s.services.applyServices(s.services.shop("db1"))
		tcp, udp := s.services.ask(client, model.ProtoTCP, v6), s.services.ask(client, model.ProtoUDP, v6)
		for _, p := range []reference.Packet{tcp, udp} {
			s.services.reached("at first", p, "db1")
			s.services.answered("at first", client, p, s.services.replyOf(p, s.services.at("db1")))
		}
		s.services.applyServices(serves(both, "db1", !v6, desired.Serving{State: desired.BackendUnhealthy, Port: 9090}))
		what := ipText(v6) + ", unhealthy by the other family"
		s.services.reached(what+", TCP", laterPacket(tcp), "db1")
		s.services.reached(what+", UDP", laterPacket(udp), "db1")
		s.services.spreadOver(what, client, v6, "db1", "db2")
		s.services.spreadOver(what+", by that", client, !v6, "db2")
		s.services.applyServices(serves(both, "db1", v6, desired.Serving{State: desired.BackendLeaving}))
		s.services.spreadOver(ipText(v6)+", leaving by this family", client, v6, "db2")
		s.services.spreadOver(ipText(v6)+", leaving by the other family", client, !v6, "db1", "db2")
		s.services.applyServices(serves(both, "db1", v6, desired.Serving{State: desired.BackendUnhealthy}))
		s.services.reached(ipText(v6)+", unhealthy by this family, UDP", laterPacket(udp), "db2")
		near := serves(both, "db1", v6, desired.Serving{Nearness: desired.NearZone})
		near = serves(serves(near, "db1", !v6, desired.Serving{Nearness: desired.NearFar}), "db2", v6, desired.Serving{Nearness: desired.NearFar})
		near = serves(near, "db2", !v6, desired.Serving{Nearness: desired.NearZone})
		near.InternalPolicy = desired.TrafficNearest
		s.services.applyServices(near)
		s.services.spreadOver(ipText(v6)+", in the zone by this family", client, v6, "db1")
		s.services.spreadOver(ipText(v6)+", in the zone by the other family", client, !v6, "db2")
		s.services.applyServices(serves(s.services.shop("db1"), "db1", v6, desired.Serving{Port: 9090}))
		for _, family := range ipv4and6 {
			want := uint16(8080)
			if family == v6 {
				want = 9090
			}
			v := s.services.Send(s.t, s.services.ask(client, model.ProtoTCP, family))
			if s.services.receiverOf("port by family", v); v.Sent.DstPort != want {
				s.t.Errorf("own port by %s: asked by %s at port %d, want %d", ipText(v6), ipText(family), v.Sent.DstPort, want)
			}
		}
	}
}
