package conformance

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// countsSettle is within how much time counters tell what packets have done.
const countsSettle = 5 * time.Second

// counts: a connection, and its packets, are counted for the port and the backend
// that they went to.
func (s *serviceCases) counts() {
	if !s.services.drv.Capabilities().ServiceStats {
		s.t.Skip("the driver does not count connections to services")
	}
	client := s.services.at("web1")
	for _, id := range []model.EndpointID{"db1", "db2"} {
		twin := s.services.secondService(id)
		s.services.applyServices(s.services.shop("db1", "db2"), twin)
		for _, v6 := range ipv4and6 {
			for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
				what := string(id) + " " + ipText(v6) + " " + proto.String()
				port := uint16(80)
				if proto == model.ProtoUDP {
					port = 53
				}
				of := driver.ServiceOf{Service: twin.Key, Protocol: proto, Port: port, IPv6: v6, Backend: s.services.at(id).Key}
				before := s.services.counted(client, of)
				p := s.services.ask(client, proto, v6)
				if p.Dst = twin.IPv4; v6 {
					p.Dst = twin.IPv6
				}
				s.services.reached(what, p, id)
				s.services.answered(what, client, p, s.services.replyOf(p, s.services.at(id)))
				s.services.reached(what, laterPacket(p), id)
				const more = 5 // a data plane may send these a shorter way
				for range more {
					s.services.answered(what, client, p, laterPacket(s.services.replyOf(p, s.services.at(id))))
					s.services.reached(what, laterPacket(p), id)
				}
				if proto == model.ProtoTCP { // refused, and another service's: not its own
					closed := s.services.ask(client, proto, v6)
					closed.Dst, closed.DstPort = p.Dst, 81
					s.services.denied(what+": at a port that it has not", closed)
					s.services.reached(what+": of another service", s.services.ask(client, proto, v6), "db1", "db2")
				}
				var now driver.ServiceStats
				want := driver.ServiceStats{Connections: 1, Total: 1, PacketsIn: 1 + more, PacketsOut: 2 + more}
				if !s.services.eventually(func() bool {
					now = s.services.counted(client, of)
					got := driver.ServiceStats{
						Connections: now.Connections - before.Connections, Total: now.Total - before.Total,
						PacketsIn: now.PacketsIn - before.PacketsIn, PacketsOut: now.PacketsOut - before.PacketsOut,
					}
					return got == want && now.BytesIn > before.BytesIn && now.BytesOut > before.BytesOut
				}) {
					s.t.Errorf("%s: counted %+v after %+v, want %+v and some bytes more", what, now, before, want)
				}
			}
		}
	}
	s.services.applyServices(s.services.shop("db1", "db2"))
	all, err := s.services.drv.Stats(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for of := range all.Services {
		if of.Service.Name == "twin" {
			s.t.Errorf("counted of a service that has gone: %+v", of)
		}
	}
}

// counted is what is counted of a client, or of all where they are not told apart.
func (s *services) counted(client model.Endpoint, of driver.ServiceOf) driver.ServiceStats {
	s.t.Helper()
	all, err := s.drv.Stats(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	sum := all.Services[of]
	of.Client = client.Key
	sum.Add(all.Services[of])
	return sum
}

// eventually reports whether something holds, at once or within some seconds: a data plane may
// tell its counters with a delay.
func (s *services) eventually(holds func() bool) bool {
	tick := time.NewTicker(countsSettle / 50)
	defer tick.Stop()
	for late := time.After(countsSettle); !holds(); {
		select {
		case <-late:
			return false
		case <-tick.C:
		}
	}
	return true
}
