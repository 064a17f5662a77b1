package desired

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// How a backend is chosen, the same on every host: a connection has one of
// ServiceSlots slots, and each slot goes to the backend that scores highest for it
// (rendezvous hashing; docs/adr/0019). So a backend that goes gives away its own
// slots, one that comes takes its share of each other's, and nothing else moves.

// ServiceSlots is how many slots the connections to a service fall into.
const ServiceSlots = 1 << 16

// Mix scrambles 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014, variant 13).
func Mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashText is a string's number: FNV-1a, scrambled.
func hashText(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return Mix(h.Sum64())
}

// Seed is the service's number, so that services with the same backends do not
// choose alike.
func (s *Service) Seed() uint64 { return hashText(s.Key.String()) }

// BackendID is a backend's number in all choices.
func BackendID(k model.EndpointKey) uint64 { return hashText(k.String()) }

// Slot returns the slot of a connection: of the client's address and port, the protocol
// and the service's port, or of the client's address alone, for those who ask a service
// with affinity and cannot be remembered. seed is the service's.
func Slot(seed uint64, alone bool, client netip.Addr, proto model.Protocol, clientPort, port uint16) uint16 {
	a := client.As16() // IPv4 as ::ffff:a.b.c.d
	h := Mix(seed ^ binary.BigEndian.Uint64(a[:8]))
	h = Mix(h ^ binary.BigEndian.Uint64(a[8:]))
	if !alone {
		h = Mix(h ^ (uint64(proto)<<32 | uint64(clientPort)<<16 | uint64(port)))
	}
	return uint16(h % ServiceSlots) //nolint:gosec // below 2^16
}

// slotKey is a slot's part of all scores for it.
func slotKey(slot uint16) uint64 { return Mix(uint64(slot) + 1) }

// score is what a backend scores for a slot.
func score(slotKey, backend uint64) uint64 { return Mix(slotKey ^ backend) }

// Choose returns the backend that has a slot, among a pool's; false when there is
// none. It looks at each backend.
func (s *Service) Choose(slot uint16, v6 bool, among TrafficPolicy) (chosen model.EndpointKey, ok bool) {
	key := slotKey(slot)
	var best, bestID uint64
	for k := range s.Pool(v6, among) {
		id := BackendID(k)
		if now := score(key, id); !ok || beats(now, id, best, bestID) {
			chosen, best, bestID, ok = k, now, id, true
		}
	}
	return chosen, ok
}

// beats compares two backends for a slot; of equal scores the smaller number's wins.
func beats(a, aID, b, bID uint64) bool { return a > b || a == b && aID < bID }

// Table is which backend has each slot of a service, for data planes that look it
// up: the same as Choose would say for each. A backend's coming and going costs
// 65,536 scores, however many others there are. The zero value has no backend.
type Table struct {
	ids    []uint64          // by index; at a free index the last backend that had it
	index  map[uint64]uint16 // of the backends
	free   []uint16
	owners []uint16 // by slot
}

// MaxBackends is how many backends of a service are chosen among.
const MaxBackends = model.MaxProviders

// Add adds a backend by its number. It fails with model.ErrExhausted beyond
// MaxBackends. A backend that is there stays as it is.
func (t *Table) Add(id uint64) error {
	if _, there := t.index[id]; there {
		return nil
	}
	if len(t.index) == MaxBackends {
		return model.Errorf(model.ErrExhausted, "a service has at most %d backends", MaxBackends)
	}
	if t.index == nil {
		t.index, t.owners = map[uint64]uint16{}, make([]uint16, ServiceSlots)
	}
	alone := len(t.index) == 0
	at := uint16(len(t.ids)) //nolint:gosec // below MaxBackends
	if n := len(t.free); n > 0 {
		at, t.free = t.free[n-1], t.free[:n-1]
		t.ids[at] = id
	} else {
		t.ids = append(t.ids, id)
	}
	t.index[id] = at
	for slot, owner := range t.owners {
		key := slotKey(uint16(slot)) //nolint:gosec // ServiceSlots
		if has := t.ids[owner]; alone || beats(score(key, id), id, score(key, has), has) {
			t.owners[slot] = at
		}
	}
	return nil
}

// Remove takes a backend out.
func (t *Table) Remove(id uint64) {
	gone, there := t.index[id]
	if !there {
		return
	}
	delete(t.index, id)
	t.free = append(t.free, gone)
	for slot, owner := range t.owners {
		if owner != gone {
			continue
		}
		key := slotKey(uint16(slot)) //nolint:gosec // ServiceSlots
		var best, bestID uint64
		for other, at := range t.index {
			if now := score(key, other); bestID == 0 && best == 0 || beats(now, other, best, bestID) {
				best, bestID, t.owners[slot] = now, other, at
			}
		}
	}
}

// Len returns the number of backends.
func (t *Table) Len() int { return len(t.index) }

// Owner returns the number of the backend that has a slot, false when there is none.
func (t *Table) Owner(slot uint16) (uint64, bool) {
	if len(t.index) == 0 {
		return 0, false
	}
	return t.ids[t.owners[slot]], true
}

// Owner returns which of some backends has a slot, by their numbers; -1 when there
// are none. It looks at each.
func Owner(slot uint16, backends []uint64) int {
	key, at := slotKey(slot), -1
	var best uint64
	for i, id := range backends {
		if now := score(key, id); at < 0 || beats(now, id, best, backends[at]) {
			at, best = i, now
		}
	}
	return at
}
