package conformance

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// clients: who is outside asks at exposed faces, nodes' among them.
func (s *frontends) clients() {
	if !s.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver serves nobody outside")
	}
	of := s.faced(append(both(1), nodes...), "db1", "db2")
	for i := range of.Frontends {
		of.Frontends[i].ExternalPolicy = desired.TrafficLocalDrop
		if of.Frontends[i].Addr == frontendAddr(1, of.Frontends[i].Addr.Is6()) {
			of.Frontends[i].Sources = []netip.Prefix{netip.PrefixFrom(Outside, 24), netip.PrefixFrom(Outside6, 64)}
		}
	}
	for _, v6 := range s.six() {
		s.have(of)
		for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := fmt.Sprintf("%s, protocol %d", at, proto)
				p := s.from(clientOutside(v6), proto)
				p.Dst = at
				s.came(what, p, "db1")
				s.answersAsService(what, p, s.back(p, s.at("db1")))
				s.came(what+", later", goOn(p), "db1")
			}
		}
		stranger := s.from(frontendAddr(200, v6), model.ProtoTCP)
		stranger.Dst = frontendAddr(1, v6)
		if v := s.Send(s.t, stranger); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: of another source: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
		byNode := s.from(node(v6).Next(), model.ProtoTCP)
		byNode.Dst = node(v6)
		s.came("from a node to a node", byNode, "db1")
		s.have(s.inState(of, "db1", desired.BackendUnhealthy))
		p := s.from(clientOutside(v6), model.ProtoTCP)
		p.Dst = node(v6)
		if v := s.Send(s.t, p); !nowhere(v) || v.Answer != nil {
			s.t.Errorf("%s: nobody here: %s (%+v), want nothing", ipText(v6), v, v.Answer)
		}
		for _, port := range []uint16{22, 81} {
			p = s.from(clientOutside(v6), model.ProtoTCP)
			p.Dst, p.DstPort = node(v6), port
			if v := s.Send(s.t, p); !nowhere(v) || v.Answer != nil {
				s.t.Errorf("%s: a node's port %d: %s (%+v), want nothing of the services'", ipText(v6), port, v, v.Answer)
			}
		}
	}
}

// hidden: a service that is not exposed has no faces for clients outside, though one
// that is has the address too.
func (s *frontends) hidden() {
	if !s.drv.Capabilities().ExternalServices {
		s.t.Skip("the driver serves nobody outside")
	}
	of, open := s.faced(append(both(1), nodes...), "db1"), s.faced(append(both(1), nodes...), "web2")
	of.Exposed = false
	open.Key.Name = "zoo"
	for i := range open.Frontends {
		open.Frontends[i].Port++
	}
	s.have(of, open)
	for _, v6 := range s.six() {
		for _, at := range []netip.Addr{frontendAddr(1, v6), node(v6)} {
			p := s.from(clientOutside(v6), model.ProtoTCP)
			p.Dst = at
			s.denied("it is not exposed", p)
			p.DstPort++
			s.came("the other one is", p, "web2")
			s.reached("from inside", s.askAt(s.at("web1"), model.ProtoTCP, at), "db1")
		}
	}
	of.Exposed = true
	s.have(of, open)
	p := s.from(Outside, model.ProtoTCP)
	p.Dst = frontendAddr(1, false)
	s.came("now it is", p, "db1")
	s.answersAsService("now it is", p, s.back(p, s.at("db1")))
	of.Exposed = false
	s.have(of, open)
	s.denied("it is no more", goOn(p))
}
