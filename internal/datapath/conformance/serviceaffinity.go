package conformance

import (
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// affinity: a client's new connections go where its former ones went, to whichever
// port, until that one takes nothing new; and so after a restart of the driver, though
// its first picture is another one than the former driver's last.
func (s *services) affinity() {
	client := s.at("web1")
	all := []model.EndpointID{"db1", "db2", "web2", "solo1"}
	with := s.shop(all...)
	with.Affinity = time.Hour
	s.have(with)
	stays := map[bool]model.EndpointID{} // by family
	var goes []reference.Packet
	for _, v6 := range ipv4and6 {
		id := s.reached("first", s.ask(client, model.ProtoTCP, v6), all...).Key.ID
		for range 10 {
			s.reached("stays", s.ask(client, model.ProtoTCP, v6), id)
			s.reached("stays, by another port", s.ask(client, model.ProtoUDP, v6), id)
		}
		less := s.inState(with, id, desired.BackendDraining)
		s.have(less)
		now := s.reached("its backend drains", s.ask(client, model.ProtoTCP, v6), without(all, id)...).Key.ID
		s.have(with)
		for range 10 {
			s.reached("stays with the other one", s.ask(client, model.ProtoTCP, v6), now)
		}
		p := s.ask(client, model.ProtoTCP, v6)
		s.answered("stays", client, p, s.replyOf(p, s.reached("stays", p, now)))
		stays[v6], goes = now, append(goes, p)
	}
	s.restart(s.t)
	s.have(with)
	keeps := func(what string) {
		s.t.Helper()
		for i, v6 := range ipv4and6 {
			s.reached(what+": a connection goes on", goOn(goes[i]), stays[v6])
			for range 10 { // by chance, without affinity: once in a million
				s.reached(what+": stays", s.ask(client, model.ProtoTCP, v6), stays[v6])
				s.reached(what+": stays, by another port", s.ask(client, model.ProtoUDP, v6), stays[v6])
			}
		}
	}
	keeps("after a restart")
	// Without stored affinity, new backends would be chosen here.
	gone := without(without(all, stays[false]), stays[true])[0]
	less := s.shop(without(all, gone)...)
	less.Affinity = with.Affinity
	s.restart(s.t)
	s.have(less)
	keeps("another one has gone at a restart")
	s.restart(s.t)
	s.have(with)
	keeps("it has come again at a restart")
	s.restart(s.t)
	for _, v6 := range ipv4and6 {
		s.have(s.inState(with, stays[v6], desired.BackendUnhealthy))
		s.reached("its backend is not well, after a restart", s.ask(client, model.ProtoTCP, v6), without(all, stays[v6])...)
	}
}

// affinityExpires: after the affinity time a client gets a new choice, so eventually another
// backend.
func (s *services) affinityExpires() {
	client := s.at("web1")
	all := []model.EndpointID{"db1", "db2", "web2", "solo1"}
	of := s.shop(all...)
	of.Affinity = time.Second
	s.have(of)
	asked := func(v6 bool) model.EndpointID {
		s.t.Helper()
		return s.reached("asks", s.ask(client, model.ProtoTCP, v6), all...).Key.ID
	}
	first := map[bool]model.EndpointID{false: asked(false), true: asked(true)} // by family
	for late := time.Now().Add(time.Minute); len(first) > 0; {
		if time.Now().After(late) {
			s.t.Fatalf("after a minute, with an affinity of a second, still with %v (IPv6 = true)", first)
		}
		<-time.After(2 * of.Affinity)
		for v6, id := range first {
			if asked(v6) != id {
				delete(first, v6)
			}
		}
	}
}

func without(all []model.EndpointID, id model.EndpointID) []model.EndpointID {
	return slices.DeleteFunc(slices.Clone(all), func(x model.EndpointID) bool { return x == id })
}
