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
// its first desired state is another one than the former driver's last.
func (s *serviceCases) affinity() {
	client := s.services.at("web1")
	all := []model.EndpointID{"db1", "db2", "web2", "solo1"}
	with := s.services.shop(all...)
	with.Affinity = time.Hour
	s.services.applyServices(with)
	stays := map[bool]model.EndpointID{} // by family
	var goes []reference.Packet
	for _, v6 := range ipv4and6 {
		id := s.services.reached("first", s.services.ask(client, model.ProtoTCP, v6), all...).Key.ID
		for range 10 {
			s.services.reached("stays", s.services.ask(client, model.ProtoTCP, v6), id)
			s.services.reached("stays, by another port", s.services.ask(client, model.ProtoUDP, v6), id)
		}
		less := s.services.inState(with, id, desired.BackendDraining)
		s.services.applyServices(less)
		now := s.services.reached("its backend drains", s.services.ask(client, model.ProtoTCP, v6), without(all, id)...).Key.ID
		s.services.applyServices(with)
		for range 10 {
			s.services.reached("stays with the other one", s.services.ask(client, model.ProtoTCP, v6), now)
		}
		p := s.services.ask(client, model.ProtoTCP, v6)
		s.services.answered("stays", client, p, s.services.replyOf(p, s.services.reached("stays", p, now)))
		stays[v6], goes = now, append(goes, p)
	}
	s.services.restart(s.t)
	s.services.applyServices(with)
	keeps := func(what string) {
		s.t.Helper()
		for i, v6 := range ipv4and6 {
			s.services.reached(what+": a connection goes on", laterPacket(goes[i]), stays[v6])
			for range 10 { // by chance, without affinity: once in a million
				s.services.reached(what+": stays", s.services.ask(client, model.ProtoTCP, v6), stays[v6])
				s.services.reached(what+": stays, by another port", s.services.ask(client, model.ProtoUDP, v6), stays[v6])
			}
		}
	}
	keeps("after a restart")
	// Without stored affinity, new backends would be chosen here.
	gone := without(without(all, stays[false]), stays[true])[0]
	less := s.services.shop(without(all, gone)...)
	less.Affinity = with.Affinity
	s.services.restart(s.t)
	s.services.applyServices(less)
	keeps("another one has gone at a restart")
	s.services.restart(s.t)
	s.services.applyServices(with)
	keeps("it has come again at a restart")
	s.services.restart(s.t)
	for _, v6 := range ipv4and6 {
		s.services.applyServices(s.services.inState(with, stays[v6], desired.BackendUnhealthy))
		s.services.reached("its backend is not well, after a restart", s.services.ask(client, model.ProtoTCP, v6), without(all, stays[v6])...)
	}
}

// affinityExpires: after the affinity time a client gets a new choice, so eventually another
// backend.
func (s *serviceCases) affinityExpires() {
	client := s.services.at("web1")
	all := []model.EndpointID{"db1", "db2", "web2", "solo1"}
	of := s.services.shop(all...)
	of.Affinity = time.Second
	s.services.applyServices(of)
	asked := func(v6 bool) model.EndpointID {
		s.t.Helper()
		return s.services.reached("asks", s.services.ask(client, model.ProtoTCP, v6), all...).Key.ID
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
