package ebpf

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"
)

// generations counts the changes of the endpoint at an address, by a place computed from
// domain and address. A verdict has the sum of the epoch and the generations of its ends
// (make_key of bpf/conntrack.h), so that an endpoint's event has its own connections judged
// again and leaves others' alone.
type generations struct {
	m  *ebpf.Map
	w  *writer
	at map[uint32]bool // places that turn when all is written
}

// generationIndex is generation_index of bpf/conntrack.h.
func generationIndex(k domainAddr) uint32 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio (Knuth 6.4)
	w := func(i int) uint64 { return uint64(binary.NativeEndian.Uint32(k.IP[4*i:])) }
	h := ((w(0)<<32 | w(1)) ^ uint64(k.Domain)) * odd
	h = (h ^ h>>29 ^ (w(2)<<32 | w(3))) * odd
	return uint32(h >> (64 - generationBits))
}

const generationBits = 16

// add notes that what is at addresses has changed.
func (t *generations) add(at ...domainAddr) {
	for _, k := range at {
		t.at[generationIndex(k)] = true
	}
}

// addSince calls add if anything was written since the count of changes.
func (t *generations) addSince(at []domainAddr, changes int) {
	if t.w.changes != changes {
		t.add(at...)
	}
}

// write has the connections of changed addresses judged again. It comes after all
// writes, as newGeneration does.
func (t *generations) write() error {
	for place := range t.at {
		var n uint32
		err := t.m.Lookup(place, &n)
		if err == nil {
			err = t.m.Put(place, n+1)
		}
		if err != nil {
			return fmt.Errorf("write map turns: %w", err)
		}
	}
	t.at = map[uint32]bool{} // to look through an emptied one costs what it has held
	return nil
}

// movedAddresses are addresses that have another endpoint, with its number; 0 = none.
type movedAddresses map[domainAddr]uint32

// between reports whether a connection's ends are not who they were.
func (s movedAddresses) between(k connKey, c conn) bool {
	other := func(ip addr, hand uint32) bool {
		now, ok := s[domainAddr{k.Domain, ip}]
		return ok && hand != 0 && hand != now
	}
	return other(k.Lo, c.LoOwnerVersion) || other(k.Hi, c.HiOwnerVersion)
}
