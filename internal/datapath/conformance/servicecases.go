package conformance

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// serviceCases are the parts of Services: each applies services of its own and tries them.
type serviceCases struct {
	services *services
	t        *testing.T
}

// spread: each backend gets its share of connections, however a data plane draws (ADR 19).
func (s *serviceCases) spread() {
	client := s.services.at("web1")
	draws := 600
	if s.services.Slow {
		draws = 150
	}
	s.services.applyServices(s.services.shop("db1", "db2", "solo1"))
	got := map[model.EndpointID]int{}
	for range draws {
		got[s.services.reached("spread", s.services.ask(client, model.ProtoUDP, false), "db1", "db2", "solo1").Key.ID]++
	}
	chi, _ := ChiSquare(draws, float64(got["db1"]), float64(got["db2"]), float64(got["solo1"]))
	if chi > 13.8 { // once in a thousand, with two degrees of freedom
		s.t.Errorf("%d connections were spread as %v: chi-square %.1f", draws, got, chi)
	}
}

// ClientsErrors is the part of RandomServices in which a client tells of what it got from a
// service.
const ClientsErrors = "a client's ICMP errors"

// QuotedTCP is the part of RandomServices in which an ICMPv6 error is about TCP.
const QuotedTCP = "ICMPv6 errors about TCP"

// inParts makes a datagram two fragments, and a later one of another datagram.
func inParts(p reference.Packet, id uint32) (first, last, stray reference.Packet) {
	first, last = p, p
	first.Frag = &reference.Fragment{ID: id, More: true}
	last.SrcPort, last.DstPort, last.Frag = 0, 0, &reference.Fragment{ID: id, Offset: 1400}
	stray = last
	stray.Frag = &reference.Fragment{ID: id + 1000, Offset: 1400}
	return first, last, stray
}
