package ebpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// member is a backend that may be chosen.
type member struct {
	id    uint64
	index uint32
}

// backendPool are who may be chosen, by whom is chosen among, sorted by index.
type backendPool struct {
	of  [backendTables][]member
	all []member // by any
	s   *desired.Service
	// known are the numbers of backends by their places, also of backends that go.
	known map[uint16]uint64
}

// backendTableOf is the choice that a traffic policy makes, of IPv4; the next one is of IPv6.
func backendTableOf(among desired.TrafficPolicy) int {
	switch among {
	case desired.TrafficLocal, desired.TrafficLocalDrop:
		return 2
	case desired.TrafficNearest:
		return 4
	case desired.TrafficCluster:
	}
	return 0
}

// poolMask returns which of the choices the clients of a service use.
func poolMask(s *desired.Service) (mask uint64) {
	asks := func(among desired.TrafficPolicy) {
		mask |= 3 << backendTableOf(among)
		if among == desired.TrafficLocalDrop { // which asks whether there is anybody
			mask |= 3
		}
	}
	if s.IPv4.IsValid() || s.IPv6.IsValid() {
		asks(s.InternalPolicy)
	}
	if s.Exposed {
		asks(desired.TrafficLocal) // the host, by its own address
		asks(s.ExternalPolicy)
	}
	for _, f := range s.Frontends {
		if asks(f.InternalPolicy); s.Exposed {
			asks(f.ExternalPolicy)
		}
	}
	return mask
}

// backendsByPool are the backends of each choice of a service; nil = no client uses it.
func backendsByPool(s *desired.Service) (out [backendTables]*desired.Pool) {
	mask, pools := poolMask(s), s.Pools()
	for _, among := range []desired.TrafficPolicy{desired.TrafficCluster, desired.TrafficLocal, desired.TrafficNearest} {
		for family := range 2 {
			if at := backendTableOf(among) + family; mask>>at&1 != 0 {
				pool := pools.Of(family == 1, among)
				out[at] = &pool
			}
		}
	}
	return out
}

// tableKey is where the owners of a service's slots are.
func tableKey(number uint32, choice int) uint32 { return number<<3 | uint32(choice) }

// putBackends writes a service's backends; gone are the ones to remove once no entry leads
// to them.
func (r *serviceRun) putBackends(x *servedService, s *desired.Service) (c backendPool, gone []backendKey, err error) {
	c.s, c.known = s, map[uint16]uint64{}
	defer func() {
		for id, i := range x.index {
			c.known[uint16(i)] = id
		}
	}()
	wanted, used := map[uint64]bool{}, map[uint32]bool{}
	for _, i := range x.index {
		used[i] = true
	}
	next, pools := uint32(0), backendsByPool(s)
	x.own = nil
	for key, b := range s.Backends.All() {
		id := desired.BackendID(key)
		wanted[id] = true
		i, had := x.index[id]
		if !had {
			for used[next] {
				next++
			}
			i = next
			used[i] = true
		}
		v4, v6 := b.Serving(false), b.Serving(true)
		v := backendEntry{ID: id, IP: [2]addr{toAddr(b.IPv4), toAddr(b.IPv6)}, State: uint8(v4.State), Port: v4.Port, State6: uint8(v6.State), Port6: v6.Port}
		if b.External() {
			v.External = 1
		}
		if own := [2]uint16{v4.Port, v6.Port}; own != [2]uint16{} {
			if x.own == nil {
				x.own = map[uint64][2]uint16{}
			}
			x.own[id] = own
		}
		for choice, pool := range pools {
			if pool != nil && pool.Has(b) {
				v.InPools |= 1 << choice
				c.of[choice] = append(c.of[choice], member{id, i})
			}
		}
		if v.InPools != 0 {
			c.all = append(c.all, member{id, i})
		}
		if err := r.maps.Backends.put(backendKey{x.number, i}, v); err != nil {
			return c, nil, err
		}
		x.index[id] = i
	}
	for id, i := range x.index {
		if !wanted[id] {
			gone = append(gone, backendKey{x.number, i})
			c.known[uint16(i)] = id
			delete(x.index, id)
		}
	}
	byIndex := func(a, b member) int { return int(a.index) - int(b.index) }
	for choice := range c.of {
		slices.SortFunc(c.of[choice], byIndex)
	}
	slices.SortFunc(c.all, byIndex)
	return c, gone, nil
}

// putHeader writes what a choice of a service rests on: its backends, if they are few,
// else a table of the slots' owners, which is written before. A service that has had a
// table keeps it until it has half as many.
func (r *serviceRun) putHeader(number uint32, c backendPool) error {
	old, had := r.maps.Services.have[number]
	h := service{Generation: old.Generation, Seed: c.s.Seed(), Affinity: uint64(c.s.Affinity), Pools: poolMask(c.s)}
	limit := maxCompared
	if old.SlotTable != [backendTables]uint32{} {
		limit = maxCompared / 2
	}
	if len(c.all) <= limit {
		for i, m := range c.all {
			h.IDs[i], h.At[i] = m.id, uint16(m.index)
			for choice := range c.of {
				if slices.Contains(c.of[choice], m) {
					h.Candidates[choice] |= 1 << i
				}
			}
		}
	} else {
		for choice, among := range c.of {
			if len(among) == 0 {
				continue
			}
			if same := slices.IndexFunc(c.of[:choice], func(m []member) bool { return slices.Equal(m, among) }); same >= 0 {
				h.SlotTable[choice] = h.SlotTable[same]
				continue
			}
			h.SlotTable[choice] = tableKey(number, choice)
			if err := r.putTable(h.SlotTable[choice], c.known, among); err != nil {
				return err
			}
		}
	}
	for _, t := range old.SlotTable {
		if t != 0 && !slices.Contains(h.SlotTable[:], t) {
			r.tables[t] = true
		}
	}
	if had && h == old {
		return r.maps.Services.put(number, h)
	}
	r.s.generation++
	h.Generation = r.s.generation
	return r.maps.Services.put(number, h)
}

// putTable makes the owners of slots what they should be: it writes the rows that differ.
func (r *serviceRun) putTable(key uint32, known map[uint16]uint64, members []member) (err error) {
	inner, table, fresh, err := r.s.slots.readOwners(key)
	if err != nil {
		return writeError{fmt.Errorf("map choices: %w", err)}
	}
	defer func() { err = errors.Join(err, inner.Close()) }()
	next := ownersOf(r.s.slots.verifiedContents(key, table), known, members)
	n, err := r.s.slots.put(key, inner, table, next, fresh)
	r.run.count(n > 0)
	return err
}

// manyServices is what is said where choices is full.
func manyServices(m *ebpf.Map) error {
	return model.Errorf(model.ErrExhausted, "this host's data plane supports %d services with more than %d backends", m.MaxEntries(), maxCompared)
}

// ownersOf are the owners of all slots, by place, among members. table has the previous
// owners, nil = none; known has the owner of each place. Only slots whose owner is gone are
// searched for among all. It runs through all slots for each service of a changed backend,
// so it looks places up in arrays.
func ownersOf(table []ownersRow, known map[uint16]uint64, members []member) []ownersRow {
	if len(members) == 0 { // of a service that could be written in part only
		return table
	}
	had := new([1 << 16]bool) // by place: it owns slots
	for _, row := range table {
		for _, o := range row {
			had[o] = true
		}
	}
	stays := new([1 << 16]uint16) // by place: one more than where its owner is among members; 0 = it is gone
	ids := make([]uint64, len(members))
	var fresh []uint64 // who owned nothing
	var at []uint16    // their places
	for i, m := range members {
		ids[i] = m.id
		if place := uint16(m.index); had[place] && known[place] == m.id {
			stays[place] = uint16(i + 1)
		} else {
			fresh, at = append(fresh, m.id), append(at, place)
		}
	}
	out := make([]ownersRow, rows)
	some := append(make([]uint64, 1, len(fresh)+1), fresh...)
	for slot := range desired.ServiceSlots {
		row, i := slot/ownersInRow, slot%ownersInRow
		if table != nil {
			owner := table[row][i]
			if here := stays[owner]; here > 0 {
				if len(fresh) > 0 {
					some[0] = ids[here-1]
					if who := desired.Owner(uint16(slot), some); who > 0 {
						owner = at[who-1]
					}
				}
				out[row][i] = owner
				continue
			}
		}
		out[row][i] = uint16(members[desired.Owner(uint16(slot), ids)].index)
	}
	return out
}

// dropTables takes out tables that no service looks at.
func (r *serviceRun) dropTables() error {
	used := map[uint32]bool{}
	if r.run.scratch {
		for _, h := range r.maps.Services.have {
			for _, key := range h.SlotTable {
				used[key] = true
			}
		}
		var key, id uint32
		it := r.s.slots.choices.Iterate()
		for it.Next(&key, &id) {
			if !used[key] {
				r.tables[key] = true
			}
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("read map choices: %w", err)
		}
	}
	for key := range r.tables {
		if h := r.maps.Services.have[key>>3]; slices.Contains(h.SlotTable[:], key) {
			continue
		}
		if err := r.s.slots.delete(key); err != nil {
			return err
		}
	}
	return nil
}
