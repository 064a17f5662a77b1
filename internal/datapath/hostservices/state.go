package hostservices

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/model"
)

// state is what the maps should hold, what they hold, and where the two may differ.
type state struct {
	want      map[Place]*Frontend
	nodes     map[addr]uint32
	nat       map[addr]addr  // host-local NAT addresses of containers, by their own
	stale     map[Place]bool // to be compared with the maps
	sameAddrs bool           // nodes and nat are in the maps

	frontends  table[placeKey, frontendEntry]
	targets    table[targetKey, target]
	members    table[memberKey, uint32]
	nodeTable  table[addr, uint32]
	containers table[addr, addr]
	number     uint32                        // the highest in use
	memberOf   map[uint32]map[memberKey]bool // by frontend
	lost       map[Place][]netip.AddrPort    // members that have left since the last sweep
}

func newState() state {
	return state{want: map[Place]*Frontend{}, nodes: map[addr]uint32{}, nat: map[addr]addr{}, stale: map[Place]bool{}, lost: map[Place][]netip.AddrPort{}}
}

// load reads the maps; everything is to be compared then.
func (s *state) load(all map[string]*ebpf.Map, r Repairs) error {
	if err := errors.Join(s.frontends.load(all, "frontends", r), s.targets.load(all, "targets", r), s.members.load(all, "members", r), s.nodeTable.load(all, "nodes", r), s.containers.load(all, "containers", r)); err != nil {
		return err
	}
	s.memberOf, s.sameAddrs = map[uint32]map[memberKey]bool{}, false
	for k := range s.members.have {
		s.noteMember(k)
	}
	for k, f := range s.frontends.have {
		s.number = max(s.number, f.Number)
		s.stale[k.place()] = true
	}
	for at := range s.want {
		s.stale[at] = true
	}
	return nil
}

func (s *state) noteMember(k memberKey) {
	if s.memberOf[k.Number] == nil {
		s.memberOf[k.Number] = map[memberKey]bool{}
	}
	s.memberOf[k.Number][k] = true
}

// sweep removes what no frontend refers to, after a load.
func (s *state) sweep() error {
	current := map[uint32]frontendEntry{}
	for _, f := range s.frontends.have {
		current[f.Number] = f
	}
	var failed []error
	for k := range maps.Clone(s.targets.have) {
		if f, has := current[k.Number]; !has || f.Version != k.Version || k.Index >= f.Targets {
			failed = append(failed, s.targets.del(k))
		}
	}
	for k := range maps.Clone(s.members.have) {
		if _, has := current[k.Number]; !has {
			failed = append(failed, s.dropMember(k))
		}
	}
	return errors.Join(failed...)
}

func (s *state) dropMember(k memberKey) error {
	if err := s.members.del(k); err != nil {
		return err
	}
	if delete(s.memberOf[k.Number], k); len(s.memberOf[k.Number]) == 0 {
		delete(s.memberOf, k.Number)
	}
	return nil
}

// write makes the maps hold what is wanted, a frontend at a time: its targets first, then
// the frontend by one write, then what it has no more.
func (s *state) write() error {
	var failed []error
	if !s.sameAddrs {
		failed = append(failed, match(&s.nodeTable, s.nodes), match(&s.containers, s.nat))
		s.sameAddrs = errors.Join(failed...) == nil
	}
	for at := range maps.Clone(s.stale) {
		if err := s.writeFrontend(at); err != nil {
			failed = append(failed, err)
			if errors.Is(err, model.ErrExhausted) {
				break
			}
			continue
		}
		delete(s.stale, at)
	}
	return errors.Join(failed...)
}

func (s *state) writeFrontend(at Place) error {
	k := toPlaceKey(at)
	was, had := s.frontends.have[k]
	f := s.want[at]
	if f == nil {
		if !had {
			return nil
		}
		if err := s.frontends.del(k); err != nil {
			return err
		}
		return s.dropTargets(at, was, nil)
	}
	now := was
	if !had {
		s.number++
		now.Number = s.number
	}
	if !had || !s.sameTargets(was, f.Targets) {
		now.Version++
		now.Targets = uint32(len(f.Targets))
		for i, t := range f.Targets {
			if err := s.targets.put(targetKey{now.Number, now.Version, uint32(i)}, target{IP: toAddr(t.Addr()), Port: t.Port()}); err != nil {
				return errors.Join(err, s.dropVersion(now))
			}
		}
	}
	if now.Reserved = 0; f.Reserved {
		now.Reserved = 1
	}
	for _, m := range f.Members {
		k := toMember(now.Number, m)
		if err := s.members.put(k, 1); err != nil {
			return err
		}
		s.noteMember(k)
	}
	if err := s.frontends.put(k, now); err != nil {
		return errors.Join(err, s.dropVersion(now))
	}
	return s.dropTargets(at, was, f)
}

// sameTargets reports whether a frontend in the maps leads to some targets.
func (s *state) sameTargets(f frontendEntry, targets []netip.AddrPort) bool {
	if int(f.Targets) != len(targets) {
		return false
	}
	for i, t := range targets {
		have, has := s.targets.have[targetKey{f.Number, f.Version, uint32(i)}]
		if !has || have != (target{IP: toAddr(t.Addr()), Port: t.Port()}) {
			return false
		}
	}
	return true
}

func (s *state) dropVersion(f frontendEntry) error {
	var failed []error
	for i := range f.Targets {
		failed = append(failed, s.targets.del(targetKey{f.Number, f.Version, i}))
	}
	return errors.Join(failed...)
}

// dropTargets removes what a frontend had and has no more; now nil = it is gone.
func (s *state) dropTargets(at Place, was frontendEntry, now *Frontend) error {
	var failed []error
	if at, has := s.frontends.have[toPlaceKey(at)]; was.Number != 0 && (!has || at.Version != was.Version) {
		failed = append(failed, s.dropVersion(was))
	}
	keep := map[memberKey]bool{}
	if now != nil {
		number := s.frontends.have[toPlaceKey(at)].Number
		for _, m := range now.Members {
			keep[toMember(number, m)] = true
		}
		was.Number = number
	}
	for k := range maps.Clone(s.memberOf[was.Number]) {
		if keep[k] {
			continue
		}
		if at.Protocol == model.ProtoUDP {
			s.lost[at] = append(s.lost[at], netip.AddrPortFrom(k.IP.netip(), k.Port))
		}
		failed = append(failed, s.dropMember(k))
	}
	return errors.Join(failed...)
}
