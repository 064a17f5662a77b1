package hostsync

import (
	"context"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// sockets leads the sockets of this host's processes to backends, before any packet is made.
// Where the kernel cannot, and for SCTP, the host's stack does.
type sockets struct {
	cfg    hostservices.Config
	places map[hostservices.Place]*hostservices.Frontend
	nodes  map[netip.Addr]bool       // nodes' addresses; of them, sockets are led at this host's
	nat    map[netip.Addr]netip.Addr // host-local NAT addresses of containers, by their own
	own    map[netip.Addr]bool       // as the programs know them
	served *hostservices.Sockets
	known  bool // own is as the host's addresses and nodes were at the last look
	unable bool // the kernel, or without cgroup2
}

func newSockets(cfg hostservices.Config) *sockets {
	return &sockets{cfg: cfg, places: map[hostservices.Place]*hostservices.Frontend{}, nodes: map[netip.Addr]bool{}, nat: map[netip.Addr]netip.Addr{}, own: map[netip.Addr]bool{}}
}

// set says which backends sockets reach at a place; nil = there is no service.
func (s *sockets) set(at hoststack.FrontendAddr, f *hoststack.Frontend) {
	if at.Proto != model.ProtoTCP && at.Proto != model.ProtoUDP {
		return
	}
	place := hostservices.Place{Addr: at.Addr, Protocol: at.Proto, Port: at.Port}
	was := s.places[place]
	delete(s.places, place)
	var now *hostservices.Frontend
	if f != nil {
		now = &hostservices.Frontend{Members: f.Keep, Reserved: f.Reserved}
		for _, t := range f.Own.Targets {
			now.Targets = append(now.Targets, t.AddrPort)
		}
		if f.Affinity != 0 && len(now.Targets) > 1 { // to all backends this host is one client
			now.Targets = []netip.AddrPort{stay(was, now.Targets)}
		}
		s.places[place] = now
	}
	if s.served != nil {
		s.served.Set(place, now)
	}
}

// stay is the backend that the host stays with: the former one, while it may be chosen.
func stay(was *hostservices.Frontend, among []netip.AddrPort) netip.AddrPort {
	if was != nil && len(was.Targets) == 1 && slices.Contains(among, was.Targets[0]) {
		return was.Targets[0]
	}
	score := func(a netip.AddrPort) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(a.String())) // never fails
		return desired.Mix(h.Sum64())
	}
	return slices.MaxFunc(among, func(a, b netip.AddrPort) int {
		if score(a) < score(b) {
			return -1
		}
		return 1
	})
}

// setContainer says by which address sockets reach a container; zero = none.
func (s *sockets) setContainer(own, nat netip.Addr) {
	if delete(s.nat, own); nat.IsValid() {
		s.nat[own] = nat
	}
	if s.served != nil {
		s.served.SetContainer(own, nat)
	}
}

// setNode says whether an address is a node's.
func (s *sockets) setNode(a netip.Addr, is bool) {
	s.known = false
	if is {
		s.nodes[a] = true
	} else {
		delete(s.nodes, a)
	}
}

// apply makes it so, or ends it where nothing is served. With look, what is there is compared.
func (s *sockets) apply(ctx context.Context, served, look bool) error {
	if s.isUnable() {
		return nil
	}
	if !served {
		if s.served == nil && !look {
			return nil
		}
		return s.end()
	}
	if s.served == nil {
		opened, err := hostservices.Open(s.cfg)
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, model.ErrNotFound) {
			s.unable = true
			s.cfg.Log.Info("services for this host's own processes are led by nftables, since that cannot be done at their sockets", "error", err)
			return nil
		}
		if err != nil {
			return err
		}
		s.served, s.own, s.known = opened, map[netip.Addr]bool{}, false
		for at, f := range s.places {
			opened.Set(at, f)
		}
		for own, nat := range s.nat {
			opened.SetContainer(own, nat)
		}
	}
	if look || !s.known {
		s.follow()
	}
	return s.served.Apply(ctx, look)
}

// isUnable reports whether sockets are not led by programs.
func (s *sockets) isUnable() bool { return s.unable || s.cfg.Pins == "" }

// follow tells the programs at which addresses of this host there are nodes' ports.
func (s *sockets) follow() {
	own := map[netip.Addr]bool{}
	for a := range hoststack.LocalAddresses() {
		own[a] = s.nodes[a]
	}
	for a, is := range s.own {
		if is && !own[a] {
			s.served.SetNode(a, false)
		}
	}
	for a, is := range own {
		s.served.SetNode(a, is)
	}
	s.own, s.known = own, true
}

// end takes the programs away.
func (s *sockets) end() error {
	var err error
	if s.served != nil {
		err = s.served.Close()
		s.served = nil
	}
	return errors.Join(err, hostservices.Remove(s.cfg.Pins))
}
