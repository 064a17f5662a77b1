package conformance

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// damaged: malformed packets to a service and back from its backends are dropped. They are
// not answered where the service has no provider, and neither begin nor end a connection.
func (s *serviceCases) damaged() {
	client := s.services.at("web1")
	of := func(p reference.Packet, x damagedCase) reference.Packet {
		if p.Damage = x.damage; x.proto == model.ProtoTCP && x.damage == reference.Intact {
			p.TCPFlags = x.flags
		}
		return p
	}
	for _, id := range []model.EndpointID{"db1", "db2", ""} {
		if s.services.applyServices(s.services.shop()); id != "" {
			s.services.applyServices(s.services.shop(id))
		}
		for _, v6 := range ipv4and6 {
			for _, x := range damaged() {
				if why := s.services.Differs[x.name]; why != "" || v6 && x.only4 {
					continue
				}
				what := fmt.Sprintf("%s %s: %s", id, ipText(v6), x.name)
				p := s.services.ask(client, x.proto, v6)
				if v := s.services.Send(s.t, of(p, x)); !nowhere(v) || v.Answer != nil {
					s.t.Errorf("%s: %s (%+v, %+v), want nothing of it", what, v, v.Sent, v.Answer)
				}
				if id == "" {
					continue
				}
				e := s.services.reached(what+", then a sound one", p, id)
				s.services.denied(what+", back before any answer", of(s.services.replyOf(p, e), x))
				s.services.answered(what+", then a sound answer", client, p, s.services.replyOf(p, e))
				s.services.denied(what+", of a known connection", of(laterPacket(p), x))
				s.services.denied(what+", back", of(s.services.replyOf(laterPacket(p), e), x))
				s.services.reached(what+": it goes on", laterPacket(p), id)
				s.services.answered(what+": it goes on", client, p, s.services.replyOf(laterPacket(p), e))
			}
		}
	}
}
