package conformance

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// manyBackends is how many backends many has, on the other host.
const manyBackends = 100

// withManyBackends makes the service with n such backends, without the one at skip (-1 = with all).
func (s *services) withManyBackends(n, skip int) {
	s.t.Helper()
	of := s.shop()
	network := s.top.Network(s.key)
	pic := s.w.Desired["h1"]
	vtep := s.top.Hosts[1].VTEP
	for i := range n {
		if i == skip {
			continue
		}
		e := s.member(i)
		of.Backends = of.Backends.Set(e.Key, &desired.Backend{Network: network.ID, IPv4: e.IPv4, Identity: e.Identity, VTEP: vtep})
		pic.Remotes = pic.Remotes.Set(desired.RemoteKey{Network: network.ID, MAC: e.MAC}, &desired.Remote{
			Network: network.ID, MAC: e.MAC, IPv4: e.IPv4, Identity: e.Identity, VTEP: vtep,
		})
	}
	pic.Services = pic.Services.Set(of.Key, &of)
	s.apply(s.t, pic)
}

// member is one of the crowd.
func (s *services) member(i int) model.Endpoint {
	a := s.top.Network(s.key).Subnet.Addr().As4()
	a[3] = byte(90 + i)
	return model.Endpoint{
		Key: model.EndpointKey{Network: s.key, ID: model.EndpointID(fmt.Sprint("crowd", i))}, Host: s.top.Hosts[1].Name,
		MAC: model.MAC{2, 8, 0, 0, 1, byte(i)}, IPv4: netip.AddrFrom4(a), Identity: s.at("db1").Identity,
	}
}

// gets sends a client's packet and returns which of the crowd gets it.
func (s *services) gets(what string, p reference.Packet) int {
	s.t.Helper()
	v := s.Send(s.t, p)
	if nowhere(v) || v.Sent == nil {
		s.t.Fatalf("%s: %s (%+v), want it at a backend", what, v, v.Sent)
	}
	for i := range manyBackends + 1 {
		if v.Sent.Dst == s.member(i).IPv4 {
			return i
		}
	}
	s.t.Fatalf("%s: sent to %s, which is no backend", what, v.Sent.Dst)
	return 0
}

// many: connections stay with their backends when many others come, one backend's
// end moves only its own, and of the choices among a hundred one more takes its
// share and moves nothing among the others.
func (s *serviceCases) many() {
	client := s.services.at("web1")
	draws := 200
	if s.services.Slow {
		draws = 60
	}
	var asked []reference.Packet
	for range draws {
		asked = append(asked, s.services.ask(client, model.ProtoTCP, false))
	}
	choices := func(n int) []int {
		s.services.apply(s.t, emptyState(1)) // no connection is known
		s.services.withManyBackends(n, -1)
		var by []int
		for _, p := range asked {
			i := s.services.gets("asks", p)
			s.services.answered("asks", client, p, s.services.replyOf(p, s.services.member(i))) // a connection needs an answer to go on
			if on := s.services.gets("goes on", laterPacket(p)); on != i {                      // and is trusted to last while others ask
				s.t.Errorf("a connection to backend %d goes on to %d", i, on)
			}
			by = append(by, i)
		}
		return by
	}
	by := choices(manyBackends / 2)
	end, of := 0, map[int]int{}
	for _, b := range by {
		if of[b]++; of[b] > of[end] {
			end = b
		}
	}
	untouched := func(what string, but int) {
		touched := 0
		for i, p := range asked {
			if by[i] != but && s.services.gets(what, laterPacket(p)) != by[i] {
				touched++
			}
		}
		if touched > 0 {
			s.t.Errorf("%s: %d of %d connections went elsewhere, want none", what, touched, draws)
		}
	}
	s.services.withManyBackends(manyBackends, -1)
	untouched("as many others have come", -1)
	s.services.withManyBackends(manyBackends, end)
	untouched("another's backend has ended", end)
	for range draws / 4 {
		if s.services.gets("asks", s.services.ask(client, model.ProtoTCP, false)) == end {
			s.t.Error("a new connection went to the backend that has ended")
		}
	}
	before, moved := choices(manyBackends), 0
	for i, now := range choices(manyBackends + 1) {
		if now == before[i] {
			continue
		}
		if moved++; now != manyBackends {
			s.t.Errorf("one backend more: a choice moved from %d to %d, not to the new one", before[i], now)
		}
	}
	if moved > 10+draws/50 { // 2 %, and what chance adds once in a million
		s.t.Errorf("a hundred backends and one more: %d of %d choices moved", moved, draws)
	}
}
