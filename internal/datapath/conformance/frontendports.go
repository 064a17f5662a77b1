package conformance

import (
	"net/netip"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// asked: a node's address by itself has its ports before all nodes' addresses, whichever
// service is first by name, and others of them stay as they are. Who loses a port there
// loses its connections, and has them again with the port.
func (s *frontends) asked() {
	client := s.services.at("web1")
	all := s.withFrontends(nodes, "db1")
	all.Exposed = false
	own := s.withFrontends([]netip.Addr{node(false), node(true)}, "web2")
	own.Key.Name = "zoo"
	protos := []model.Protocol{model.ProtoTCP, model.ProtoUDP}
	begin := func(what string, at netip.Addr, id model.EndpointID) (living []reference.Packet) {
		s.t.Helper()
		for _, proto := range protos {
			p := s.askAt(client, proto, at)
			s.services.answered(what, client, p, s.services.replyOf(p, s.services.reached(what, p, id)))
			living = append(living, p)
		}
		return living
	}
	goesOn := func(what string, living []reference.Packet, id model.EndpointID) {
		s.t.Helper()
		for _, p := range living {
			e := s.services.reached(what, laterPacket(p), id)
			s.services.answered(what, client, p, s.services.replyOf(laterPacket(p), e))
		}
	}
	for _, v6 := range ipv4and6 {
		a, other := node(v6), node(v6).Next()
		s.applyServices(all)
		at, there := begin("at first", a, "db1"), begin("at first, another node", other, "db1")
		s.applyServices(all, own)
		goesOn("another node's", there, "db1")
		goesOn("the port is another's", at, "web2")
		at = begin("the port is another's, anew", a, "web2")
		for _, port := range []uint16{22, 81} { // neither has it there
			p := s.askAt(client, model.ProtoTCP, a)
			p.DstPort = port
			if v := s.services.Send(s.t, p); !nowhere(v) && v.Sent != nil && v.Sent.Dst != a {
				s.t.Errorf("%s: port %d: %s (%+v), want nothing of the services'", a, port, v, v.Sent)
			}
		}
		s.services.restart(s.t)
		s.applyServices(all, own)
		goesOn("after a restart", at, "web2")
		goesOn("another node's, after a restart", there, "db1")
		s.applyServices(all)
		goesOn("the port is all nodes' again", at, "db1")
		begin("the port is all nodes' again, anew", a, "db1")
		goesOn("another node's, still", there, "db1")

		shut := all
		shut.Frontends = nil
		for _, f := range all.Frontends {
			f.Sources = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 32)}
			shut.Frontends = append(shut.Frontends, f)
		}
		s.applyServices(shut, own)
		begin("all others are shut", a, "web2")
		for _, proto := range protos {
			if v := s.services.Send(s.t, s.askAt(client, proto, other)); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: shut: %s (%+v), want nothing", other, v, v.Answer)
			}
		}
		s.applyServices(own)
		begin("no port at all nodes'", a, "web2")
		if v := s.services.Send(s.t, s.askAt(client, model.ProtoTCP, other)); !nowhere(v) && v.Sent != nil && v.Sent.Dst != other {
			s.t.Errorf("%s: nobody's: %s (%+v), want nothing of the services'", other, v, v.Sent)
		}

		s.applyServices(all, own) // a node goes, with its ports or without, and comes
		for _, with := range [][]desired.Service{{all}, {all, own}} {
			gone := s.desiredState(with...)
			gone.NodeAddrs = gone.NodeAddrs.Delete(a)
			s.services.apply(s.t, gone)
			begin("a node has gone, another", other, "db1")
			p := s.askAt(client, model.ProtoTCP, a)
			if len(with) == 2 { // an address like any
				s.services.reached("a node no more", p, "web2")
			} else if v := s.services.Send(s.t, p); !nowhere(v) && v.Sent != nil && v.Sent.Dst != a {
				s.t.Errorf("%s: a node no more: %s (%+v), want nothing of the services'", a, v, v.Sent)
			}
			s.applyServices(all, own)
			begin("a node is back", a, "web2")
			begin("a node is back, another", other, "db1")
			want := s.services.inspect(s.t)
			s.services.restart(s.t)
			s.applyServices(all, own)
			if diff := cmp.Diff(want, s.services.inspect(s.t)); diff != "" {
				s.t.Errorf("%s: state after a restart (-want +got):\n%s", a, diff)
			}
		}

		s.applyServices(all)
		at = begin("before its own", a, "db1")
		same := s.withFrontends([]netip.Addr{node(false), node(true)}, "db1")
		s.applyServices(same)
		goesOn("the same service, by the address itself", at, "db1")
		s.applyServices(all)
		goesOn("the same service, at all nodes'", at, "db1")
	}
	if !s.services.drv.Capabilities().ExternalServices {
		return
	}
	for _, v6 := range s.outside.six() { // who is not exposed has no ports for them
		s.applyServices(all, own)
		for _, proto := range protos {
			p := s.outside.from(clientOutside(v6), proto)
			p.Dst = node(v6)
			s.outside.came("outside", p, "web2")
			s.outside.answersAsService("outside", p, s.outside.back(p, s.services.at("web2")))
			p = s.outside.from(clientOutside(v6), proto)
			p.Dst = node(v6).Next()
			if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: outside, at another node: %s (%+v), want nothing", p.Dst, v, v.Answer)
			}
		}
	}
}
