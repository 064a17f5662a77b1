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

// Whose a tuple behind a translation is.

// secondService makes another service with the same ports.
func (s *services) secondService(ids ...model.EndpointID) desired.Service {
	out := s.shop(ids...)
	out.Key.Name = "twin"
	a, b := out.IPv4.As4(), out.IPv6.As16()
	a[3], b[15] = 201, 201
	out.IPv4, out.IPv6 = netip.AddrFrom4(a), netip.AddrFrom16(b)
	return out
}

func (s *serviceCases) oneOwner() {
	client := s.services.at("web1")
	twin := s.services.secondService("db2")
	s.services.applyServices(s.services.shop("db2"), twin)
	for _, v6 := range ipv4and6 {
		one := s.services.ask(client, model.ProtoTCP, v6)
		s.services.reached("the first", one, "db2")
		two := one
		if two.Dst = twin.IPv4; v6 {
			two.Dst = twin.IPv6
		}
		v := s.services.Send(s.t, two)
		s.services.receiverOf("the second", v)
		if v.Sent.SrcPort == one.SrcPort {
			s.t.Errorf("%s: two services' connections have one tuple", ipText(v6))
		}
		back := s.services.replyOf(one, s.services.at("db2"))
		s.services.answered("the first", client, one, back)
		back.DstPort = v.Sent.SrcPort
		s.services.answered("the second", client, two, back)
		back.TCPFlags = reference.FlagSYN
		s.services.denied("the backend asks by the same tuple", back)
		direct := between(s.services.top, client, s.services.at("db2"), model.ProtoTCP, v6, one.SrcPort, 8080)
		s.services.denied("the client asks the backend by the same tuple", direct)
		s.services.reached("the first goes on", laterPacket(one), "db2")
		last := s.services.ask(client, model.ProtoTCP, v6) // after the last port come those from 1024 on
		last.SrcPort = 65535
		s.services.reached("the last port", last, "db2")
		if last.Dst = twin.IPv4; v6 {
			last.Dst = twin.IPv6
		}
		v = s.services.Send(s.t, last)
		s.services.receiverOf("the last port again", v)
		if got := v.Sent.SrcPort; got < 1024 || got == last.SrcPort {
			s.t.Errorf("%s: the last port's place has port %d", ipText(v6), got)
		}
	}
}

// ResetKeeps is the part of Services' Closed in which one end resets the connection.
const ResetKeeps = "a connection that was reset gives its tuple up to a request"

// closed: what is closed gives its tuple up to a request of either end, and what is
// half closed does not.
func (s *serviceCases) closed() {
	client := s.services.at("web1")
	for _, id := range []model.EndpointID{"db1", "db2"} {
		backend := s.services.at(id)
		s.services.applyServices(s.services.shop(id))
		for _, v6 := range ipv4and6 {
			for _, x := range []struct {
				name string
				by   []bool // who ends it, in this order: true = the backend
				flag uint8
			}{
				{"the client ends it first", []bool{false, true}, reference.FlagFIN | reference.FlagACK},
				{"the backend ends it first", []bool{true, false}, reference.FlagFIN | reference.FlagACK},
				{"the backend resets it", []bool{true}, reference.FlagRST | reference.FlagACK},
				{"the client resets it", []bool{false}, reference.FlagRST | reference.FlagACK},
			} {
				if why := s.services.Differs[ResetKeeps]; why != "" && x.flag&reference.FlagRST != 0 {
					s.t.Logf("%s: %s", ResetKeeps, why)
					continue
				}
				what := fmt.Sprintf("%s %s, %s", id, ipText(v6), x.name)
				_, direct := s.services.closes(what, client, backend, v6, x.by, x.flag)
				s.services.passesAsIs(what+": the client asks the backend", direct, backend)
				s.services.passesAsIs(what+": the backend answers", s.services.replyOf(direct, backend), client)

				_, direct = s.services.closes(what, client, backend, v6, x.by, x.flag)
				asks := s.services.replyOf(direct, backend)
				asks.TCPFlags = reference.FlagSYN
				s.services.passesAsIs(what+": the backend asks", asks, client)
				direct.TCPFlags = reference.FlagSYN | reference.FlagACK
				s.services.passesAsIs(what+": the client answers", direct, backend)

				p, _ := s.services.closes(what, client, backend, v6, x.by, x.flag)
				v := s.services.Send(s.t, p)
				s.services.receiverOf(what+": asks the service again by the same port", v)
				back := s.services.replyOf(p, backend)
				back.DstPort = v.Sent.SrcPort // it may have got another one
				s.services.answered(what+": asked again", client, p, back)
				s.services.sport += 10
			}
		}
	}
}

// closes begins a connection to the service and ends it; by says who sends the flags,
// in this order: true = the backend. It returns the client's first packet, and a
// request of the client's to the backend by the tuple behind.
func (s *services) closes(what string, client, backend model.Endpoint, v6 bool, by []bool, flags uint8) (p, direct reference.Packet) {
	s.t.Helper()
	id := backend.Key.ID
	p = s.ask(client, model.ProtoTCP, v6)
	direct = between(s.top, client, backend, model.ProtoTCP, v6, p.SrcPort, 8080)
	s.reached(what, p, id)
	s.answered(what, client, p, s.replyOf(p, backend))
	s.reached(what+": goes on", laterPacket(p), id)
	there, back := laterPacket(p), s.replyOf(laterPacket(p), backend)
	for _, backends := range by {
		s.denied(what+": the client asks the backend by the tuple of what is not closed", direct)
		there.TCPFlags, back.TCPFlags = flags, flags
		if backends {
			s.answered(what+": ends", client, p, back)
		} else {
			s.reached(what+": ends", there, id)
		}
	}
	if len(by) == 1 { // a reset
		return p, direct
	}
	there.TCPFlags, back.TCPFlags = reference.FlagACK, reference.FlagACK
	if by[0] { // the side that ended it first acknowledges the other's end
		s.answered(what+": the last word", client, p, back)
	} else {
		s.reached(what+": the last word", there, id)
	}
	return p, direct
}

// passesAsIs sends a packet and wants it at an endpoint, untranslated.
func (s *services) passesAsIs(what string, p reference.Packet, to model.Endpoint) {
	s.t.Helper()
	v := s.Send(s.t, p)
	there := slices.Equal(v.Ports, []string{compile.IfName(to.Key)})
	if to.Host != "h1" {
		there = slices.Equal(v.VTEPs, []netip.Addr{s.top.Hosts[1].VTEP})
	}
	if got := v.Sent; !there || got != nil && (got.Src != p.Src || got.Dst != p.Dst || got.SrcPort != p.SrcPort || got.DstPort != p.DstPort || got.SrcMAC != p.SrcMAC) {
		s.t.Fatalf("%s: %s (%+v), want it at %s as it was sent", what, v, got, to.Key)
	}
}
