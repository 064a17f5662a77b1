package conformance

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// relay is the address by which a client outside asks backends that are no endpoints.
func (s *externalBackends) relay(v6 bool) netip.Addr {
	return s.services.w.Desired["h1"].HostNAT.Relay(v6)
}

// atHost is the packet that came to the host's stack. A harness cannot tell an ICMP error that goes
// back to the host from an answer.
func atHost(v reference.Verdict) *reference.Packet {
	switch {
	case v.Answer != nil:
		return v.Answer
	case v.Host && len(v.VTEPs) == 0 && len(v.Ports) == 0:
		return v.Sent
	}
	return nil
}

// byRelay sends a packet of a client outside, and wants it on its way to a place by the relay address.
func (s *externalBackends) byRelay(what string, p reference.Packet, to backendPlace) *reference.Packet {
	s.t.Helper()
	v6 := p.Src.Is6()
	v := s.services.Send(s.t, p)
	got := atHost(v)
	if got == nil || got.DstMAC != desired.RouterMAC {
		s.t.Fatalf("%s: %s (%+v), want it at the host's stack, on its way to %s", what, v, got, to.name)
	}
	if got.Src != s.relay(v6) || got.Dst != to.addr(v6) {
		s.t.Fatalf("%s: it went as %s > %s, want %s > %s", what, got.Src, got.Dst, s.relay(v6), to.addr(v6))
	}
	if later := p.Frag != nil && p.Frag.Offset != 0; !later && p.Proto.HasPorts() && got.DstPort != backendPort(p.Proto) {
		s.t.Fatalf("%s: to port %d, want %d", what, got.DstPort, backendPort(p.Proto))
	}
	return got
}

// toOutsider sends what a backend sends to the relay address, and wants it at the host's stack, as
// the service's answer to a client's packet.
func (s *externalBackends) toOutsider(what string, asked, r reference.Packet) *reference.Packet {
	s.t.Helper()
	v := s.services.Send(s.t, byStack(r))
	got := atHost(v)
	if got == nil || got.Src != asked.Dst || got.Dst != asked.Src || got.SrcMAC != desired.RouterMAC {
		s.t.Fatalf("%s: %s (%+v), want %s > %s at the host's stack", what, v, got, asked.Dst, asked.Src)
	}
	if first := r.Frag == nil || r.Frag.Offset == 0; first && r.Proto.HasPorts() && (got.SrcPort != asked.DstPort || got.DstPort != asked.SrcPort) {
		s.t.Fatalf("%s: ports %d > %d, want %d > %d", what, got.SrcPort, got.DstPort, asked.DstPort, asked.SrcPort)
	}
	return got
}

// exchange has a packet of a client outside relayed to a place, and answered.
func (s *externalBackends) exchange(what string, p reference.Packet, to backendPlace) *reference.Packet {
	s.t.Helper()
	sent := s.byRelay(what, p, to)
	s.toOutsider(what+": answer", p, s.native.answer(*sent))
	return sent
}

// outsiders: the relay address asks such backends in place of clients outside.
func (s *externalBackends) outsiders() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver knows no clients outside")
	}
	o := &externalTest{s.services, s.t}
	for _, to := range s.places() {
		for _, v6 := range s.families() {
			what := to.name + " " + ipText(v6)
			client := clientOutside(v6).Next()
			of := s.with(o.open(), to)
			s.applyServices(of)
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				p := o.from(client, proto)
				for range 2 {
					s.byRelay(what+", not answered yet", p, to)
				}
				for range 2 {
					s.exchange(what, laterPacket(p), to)
				}
			}
			p, q := o.from(client, model.ProtoTCP), o.from(client.Next(), model.ProtoTCP)
			q.SrcPort = p.SrcPort
			one, two := s.exchange(what+", one client", p, to), s.exchange(what+", another client with the same port", q, to)
			if one.SrcPort != p.SrcPort || two.SrcPort == one.SrcPort {
				s.t.Errorf("%s: clients with port %d came by ports %d and %d, want that one and another", what, p.SrcPort, one.SrcPort, two.SrcPort)
			}
			s.toOutsider(what+", the first one's answer again", p, s.native.answer(laterPacket(*one)))
			request := s.native.answer(*one)
			request.TCPFlags = reference.FlagSYN
			s.services.denied(what+": the backend asks by the same tuple", byStack(request))
			stray := s.native.answer(*one)
			stray.DstPort += 777
			s.services.denied(what+": an answer to nothing", byStack(stray))

			s.applyServices(s.with(o.open("db1"), to))
			s.exchange(what+": another backend comes", laterPacket(p), to)
			s.applyServices(o.open("db1"))
			s.exchange(what+": it has left the service", laterPacket(p), to)
			s.services.reached(what+": a new connection", o.from(client, model.ProtoTCP), "db1")
			s.applyServices()
			s.services.denied(what+": the service is gone: answer", byStack(s.native.answer(laterPacket(*one))))
		}
	}
}

// outsidersErrors: ICMP errors about packets that are relayed, and about their answers.
func (s *externalBackends) outsidersErrors() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver knows no clients outside")
	}
	o, to := &externalTest{s.services, s.t}, s.places()[0]
	for _, v6 := range s.families() {
		what := ipText(v6)
		s.applyServices(s.with(o.open(), to))
		p := o.from(clientOutside(v6).Next(), model.ProtoUDP)
		sent := s.byRelay(what, p, to)
		e := s.native.about(*sent)
		for name, src := range map[string]netip.Addr{"the backend": e.Src, "a router": clientOutside(v6).Next().Next()} {
			x := e
			x.Src = src
			v := s.services.Send(s.t, byStack(x))
			got := atHost(v)
			if got == nil || got.Inner == nil || got.Dst != p.Src || got.Inner.Src != p.Src || got.Inner.Dst != p.Dst || got.Inner.SrcPort != p.SrcPort || got.Inner.DstPort != p.DstPort {
				s.t.Fatalf("%s: error of %s: %s (%+v), want it at the host's stack, about the client's packet", what, name, v, got)
			}
		}
		r := s.toOutsider(what, p, s.native.answer(*sent))
		if s.services.Differs[ClientsErrors] == "" {
			got := s.byRelay(what+": the client's error", byStack(s.native.about(*r)), to)
			if in := got.Inner; in == nil || in.Src != to.addr(v6) || in.Dst != s.relay(v6) || in.SrcPort != backendPort(p.Proto) || in.DstPort != sent.SrcPort {
				s.t.Errorf("%s: the client's error went as %+v about %+v", what, got, in)
			}
		}
	}
}

// outsidersFragments: datagrams of clients outside, and of backends, in fragments.
func (s *externalBackends) outsidersFragments() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver knows no clients outside")
	}
	o, to, id := &externalTest{s.services, s.t}, s.places()[0], uint32(19500)
	for _, v6 := range s.families() {
		what := ipText(v6)
		s.applyServices(s.with(o.open(), to))
		p := o.from(clientOutside(v6).Next(), model.ProtoUDP)
		id += 10
		first, rest, stray := inParts(p, id)
		if s.services.SkipPacket != nil {
			if why := s.services.SkipPacket(first); why != "" {
				s.t.Skip(why)
			}
		}
		s.services.denied(what+": without its first", stray)
		sent := s.byRelay(what+": first", first, to)
		s.byRelay(what+": last", rest, to)
		whole := *sent
		whole.Frag = nil
		id += 10
		back, last, _ := inParts(s.native.answer(whole), id)
		s.toOutsider(what+": first back", p, back)
		s.toOutsider(what+": last back", p, last)
	}
}

// outsidersNowhere: a service leads a client outside to no address that the host's stack keeps
// from containers, and to no endpoint that is not the backend.
func (s *externalBackends) outsidersNowhere() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver knows no clients outside")
	}
	o, way := &externalTest{s.services, s.t}, s.services.w.Desired["h1"].HostNAT
	for _, v6 := range s.families() {
		client := clientOutside(v6).Next()
		bad := map[string]netip.Addr{
			"an endpoint's": addrOf(s.services.at("db1"), v6), "an endpoint's elsewhere": addrOf(s.services.at("db2"), v6), "an unused one of the network": s.native.unusedAddr(v6),
			"the relay's": s.relay(v6), "loopback": netip.MustParseAddr("127.0.0.1"),
		}
		if v6 {
			bad["loopback"] = netip.MustParseAddr("::1")
		}
		if s.isNative() {
			bad["another native network's"] = addrOf(s.native.other("app2"), v6)
		}
		for name, a := range bad {
			s.applyServices(s.with(o.open(), backendPlace{name: name, v4: a, v6: a}))
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				s.services.denied("to an address that is "+name, o.from(client, proto))
			}
		}
		own := backendPlace{name: "the host's own", v4: way.Addr, v6: way.Addr6}
		s.applyServices(s.with(o.open(), own))
		s.exchange("to the host's own address", o.from(client, model.ProtoTCP), own)
	}
	of := s.with(o.open(), s.places()[0])
	for i := range of.Ports {
		of.Ports[i].Backend = TunnelPort
	}
	s.applyServices(of)
	s.services.denied("to a tunnel's port", o.from(clientOutside(false).Next(), model.ProtoUDP))
}

// outsidersCounts: relayed connections are counted as to any other backend.
func (s *externalBackends) outsidersCounts() {
	if can := s.services.drv.Capabilities(); !can.ExternalServices || !can.ServiceStats {
		s.t.Skip("the driver knows no clients outside, or does not count connections to services")
	}
	o, to := &externalTest{s.services, s.t}, s.places()[0]
	for _, v6 := range s.families() {
		s.applyServices(s.with(o.open(), to))
		of := driver.ServiceOf{Service: s.services.shop().Key, Protocol: model.ProtoTCP, Port: 80, IPv6: v6, Backend: to.key()}
		before := s.services.counted(model.Endpoint{}, of)
		p := o.from(clientOutside(v6).Next(), model.ProtoTCP)
		s.exchange(ipText(v6), p, to)
		s.exchange(ipText(v6), laterPacket(p), to)
		var now driver.ServiceStats
		if !s.services.eventually(func() bool {
			now = s.services.counted(model.Endpoint{}, of)
			return now.Total-before.Total >= 1 && now.PacketsOut-before.PacketsOut >= 2 && now.PacketsIn-before.PacketsIn >= 2
		}) {
			s.t.Errorf("%s: counted %+v after %+v, want one connection more, and two packets each way", ipText(v6), now, before)
		}
	}
}
