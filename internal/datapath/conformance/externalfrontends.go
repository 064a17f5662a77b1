package conformance

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// clients: who is outside asks at exposed frontends, nodes' among them.
func (s *frontends) clients() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver serves nobody outside")
	}
	of := s.withFrontends(append(both(1), nodes...), "db1", "db2")
	for i := range of.Frontends {
		of.Frontends[i].ExternalPolicy = desired.TrafficLocalDrop
		if of.Frontends[i].Addr == frontendAddr(1, of.Frontends[i].Addr.Is6()) {
			of.Frontends[i].Sources = []netip.Prefix{netip.PrefixFrom(Outside, 24), netip.PrefixFrom(Outside6, 64)}
		}
	}
	for _, v6 := range s.outside.six() {
		s.applyServices(of)
		for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := fmt.Sprintf("%s, protocol %d", at, proto)
				p := s.outside.from(clientOutside(v6), proto)
				p.Dst = at
				s.outside.came(what, p, "db1")
				s.outside.answersAsService(what, p, s.outside.back(p, s.services.at("db1")))
				s.outside.came(what+", later", laterPacket(p), "db1")
			}
		}
		stranger := s.outside.from(frontendAddr(200, v6), model.ProtoTCP)
		stranger.Dst = frontendAddr(1, v6)
		if v := s.services.Send(s.t, stranger); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: of another source: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
		byNode := s.outside.from(node(v6).Next(), model.ProtoTCP)
		byNode.Dst = node(v6)
		s.outside.came("from a node to a node", byNode, "db1")
		s.applyServices(s.services.inState(of, "db1", desired.BackendUnhealthy))
		p := s.outside.from(clientOutside(v6), model.ProtoTCP)
		p.Dst = node(v6)
		if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: nobody here: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
		for _, port := range []uint16{22, 81} {
			p = s.outside.from(clientOutside(v6), model.ProtoTCP)
			p.Dst, p.DstPort = node(v6), port
			if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: a node's port %d: %s (%+v), want nothing of the services'", ipText(v6), port, v, v.Answer)
			}
		}
	}
}

// hidden: a service that is not exposed has no frontends for clients outside, though one
// that is has the address too.
func (s *frontends) hidden() {
	if !s.services.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver serves nobody outside")
	}
	of, open := s.withFrontends(append(both(1), nodes...), "db1"), s.withFrontends(append(both(1), nodes...), "web2")
	of.Exposed = false
	open.Key.Name = "zoo"
	for i := range open.Frontends {
		open.Frontends[i].Port++
	}
	s.applyServices(of, open)
	for _, v6 := range s.outside.six() {
		for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
			p := s.outside.from(clientOutside(v6), model.ProtoTCP)
			p.Dst = at
			s.services.denied("it is not exposed", p)
			p.DstPort++
			s.outside.came("the other one is", p, "web2")
			s.services.reached("from inside", s.askAt(s.services.at("web1"), model.ProtoTCP, at), "db1")
		}
	}
	of.Exposed = true
	s.applyServices(of, open)
	p := s.outside.from(Outside, model.ProtoTCP)
	p.Dst = frontendAddr(1, false)
	s.outside.came("now it is", p, "db1")
	s.outside.answersAsService("now it is", p, s.outside.back(p, s.services.at("db1")))
	of.Exposed = false
	s.applyServices(of, open)
	s.services.denied("it is no more", laterPacket(p))
}
