package conformance

import (
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// recreated: a service that is deleted and created again forgets its connections. They all
// had one backend; with two backends they get a new choice.
func (s *serviceCases) recreated() {
	client := s.services.at("web1")
	for _, v6 := range ipv4and6 {
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			what := ipText(v6) + " " + proto.String()
			s.services.applyServices(s.services.shop("db1"))
			var asked []reference.Packet
			for range 20 {
				p := s.services.ask(client, proto, v6)
				s.services.reached(what, p, "db1")
				s.services.answered(what, client, p, s.services.replyOf(p, s.services.at("db1")))
				s.services.reached(what+": goes on", laterPacket(p), "db1")
				asked = append(asked, p)
			}
			s.services.applyServices()
			s.services.denied(what+": the service is gone", laterPacket(asked[0]))
			s.services.applyServices(s.services.shop("db1", "db2"))
			others := 0
			for _, p := range asked {
				e := s.services.reached(what+": the service is made again", laterPacket(p), "db1", "db2")
				s.services.answered(what+": the service is made again", client, p, s.services.replyOf(laterPacket(p), e))
				if e.Key.ID == "db2" {
					others++
				}
			}
			if others == 0 { // by chance, once in a million
				s.t.Errorf("%s: all %d connections of the former service go on with its backend", what, len(asked))
			}
		}
	}
}
