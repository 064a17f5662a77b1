package conformance

import (
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// closed: a service that was deleted leaves a frontend of port 0 at each address. Its connections
// are reset, and clients inside are refused at all ports.
func (s *frontends) closed() {
	client := s.services.at("web1")
	left := s.withFrontends(both(1))
	left.Frontends = slices.DeleteFunc(left.Frontends, func(f desired.Frontend) bool { return f.Protocol != model.ProtoTCP })
	for i := range left.Frontends {
		left.Frontends[i].Port, left.Frontends[i].Backend = 0, 0
	}
	for _, v6 := range ipv4and6 {
		s.applyServices(s.withFrontends(both(1), "db1"))
		p := s.askAt(client, model.ProtoTCP, frontendAddr(1, v6))
		s.services.reached("before", p, "db1")
		s.services.answered("before", client, p, s.services.replyOf(p, s.services.at("db1")))
		s.applyServices(left)
		if v := s.services.Send(s.t, laterPacket(p)); !nowhere(v) || v.Answer == nil {
			s.t.Errorf("%s: its connection: %s (%+v), want a reset", ipText(v6), v, v.Answer)
		}
		for _, proto := range []model.Protocol{model.ProtoTCP, model.ProtoUDP} {
			for _, port := range []uint16{22, 53, 80} {
				p := s.askAt(client, proto, frontendAddr(1, v6))
				p.DstPort = port
				if v := s.services.Send(s.t, p); !nowhere(v) || v.Answer == nil {
					s.t.Errorf("%s: port %s/%d: %s (%+v), want a refusal", ipText(v6), fmt.Sprint(proto), port, v, v.Answer)
				}
			}
		}
	}
}
