package desired

import (
	"hash/maphash"
	"iter"
	"slices"
)

// Map is a persistent map: Set and Delete return a new Map that shares all but
// the touched parts with the old one, and Diff visits only the parts in which
// two maps differ. The zero value is an empty map. Keys are spread over 4,096
// parts, so a part holds about 250 objects at a million, and a change copies
// one part and two tables of 64 pointers.
type Map[K comparable, V comparable] struct {
	root *[fan]*shardGroup[K, V]
	n    int
}

const fan = 64

type shardGroup[K comparable, V comparable] [fan]*shard[K, V]

// shard holds its entries by their place. It is a list and not a Go map, since most
// parts of most maps have a few entries, for which a map keeps room for eight and
// takes its time to be walked. It is behind a pointer so that shared parts are
// recognised without a look inside.
type shard[K comparable, V comparable] struct{ entries []entry[K, V] }

type entry[K comparable, V comparable] struct {
	key   K
	value V
	hash  uint8 // of the key's hash; several keys may have the same
}

func (p *shard[K, V]) get() []entry[K, V] {
	if p == nil {
		return nil
	}
	return p.entries
}

// find returns where in a part an entry is, or is to be put.
func (p *shard[K, V]) find(k K, place uint8) (int, bool) {
	list := p.get()
	i, _ := slices.BinarySearchFunc(list, place, func(e entry[K, V], place uint8) int { return int(e.hash) - int(place) })
	for ; i < len(list) && list[i].hash == place; i++ {
		if list[i].key == k {
			return i, true
		}
	}
	return i, false
}

// seed is fixed for the process: two maps must agree where a key lives.
var seed = maphash.MakeSeed()

// slot returns the part in which a key lives, and its place there.
func slot[K comparable](k K) (int, int, uint8) {
	h := maphash.Comparable(seed, k)
	return int(h % fan), int(h / fan % fan), uint8(h >> 56)
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.n }

// Get returns the value at k.
func (m Map[K, V]) Get(k K) (V, bool) {
	i, j, place := slot(k)
	p := m.mid(i).part(j)
	if at, ok := p.find(k, place); ok {
		return p.entries[at].value, true
	}
	var zero V
	return zero, false
}

// put returns a copy of m with other entries, shared with no other map, in one part.
func (m Map[K, V]) put(i, j int, entries []entry[K, V]) Map[K, V] {
	root := new([fan]*shardGroup[K, V])
	if m.root != nil {
		*root = *m.root
	}
	mid := new(shardGroup[K, V])
	if root[i] != nil {
		*mid = *root[i]
	}
	mid[j], root[i] = nil, mid
	n := m.n - len(m.mid(i).part(j).get()) + len(entries)
	if len(entries) > 0 {
		mid[j] = &shard[K, V]{entries}
	}
	return Map[K, V]{root, n}
}

// Set returns a map in which k has the value v. Setting an equal value returns
// m itself.
func (m Map[K, V]) Set(k K, v V) Map[K, V] {
	i, j, place := slot(k)
	p := m.mid(i).part(j)
	at, ok := p.find(k, place)
	old := p.get()
	if ok && old[at].value == v {
		return m
	}
	rest := old[at:]
	if ok {
		rest = rest[1:]
	}
	entries := make([]entry[K, V], 0, at+1+len(rest))
	entries = append(append(append(entries, old[:at]...), entry[K, V]{k, v, place}), rest...)
	return m.put(i, j, entries)
}

// Delete returns a map without k.
func (m Map[K, V]) Delete(k K) Map[K, V] {
	i, j, place := slot(k)
	p := m.mid(i).part(j)
	at, ok := p.find(k, place)
	if !ok {
		return m
	}
	entries := make([]entry[K, V], 0, len(p.entries)-1)
	return m.put(i, j, append(append(entries, p.entries[:at]...), p.entries[at+1:]...))
}

// All iterates over the entries in no particular order.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.root == nil {
			return
		}
		for _, mid := range m.root {
			if mid == nil {
				continue
			}
			for _, p := range mid {
				for _, e := range p.get() {
					if !yield(e.key, e.value) {
						return
					}
				}
			}
		}
	}
}

// Change is one entry in which two maps differ.
type Change[K comparable, V comparable] struct {
	Key      K
	Old, New V
	Had, Has bool // whether the entry is in the old and the new map
}

// Diff yields the entries in which m differs from old, in no particular order.
// Its cost grows with the number of parts that differ, not with the maps.
func (m Map[K, V]) Diff(old Map[K, V]) iter.Seq[Change[K, V]] {
	return func(yield func(Change[K, V]) bool) {
		if m.root == old.root {
			return
		}
		for i := range fan {
			a, b := old.mid(i), m.mid(i)
			if a == b {
				continue
			}
			for j := range fan {
				if x, y := a.part(j), b.part(j); x != y && !diffPart(x, y, yield) {
					return
				}
			}
		}
	}
}

func (m Map[K, V]) mid(i int) *shardGroup[K, V] {
	if m.root == nil {
		return nil
	}
	return m.root[i]
}

func (d *shardGroup[K, V]) part(j int) *shard[K, V] {
	if d == nil {
		return nil
	}
	return d[j]
}

func diffPart[K comparable, V comparable](a, b *shard[K, V], yield func(Change[K, V]) bool) bool {
	for _, e := range a.get() {
		c := Change[K, V]{Key: e.key, Old: e.value, Had: true}
		if at, ok := b.find(e.key, e.hash); ok {
			c.New, c.Has = b.entries[at].value, true
		}
		if (!c.Has || c.New != c.Old) && !yield(c) {
			return false
		}
	}
	for _, e := range b.get() {
		if _, ok := a.find(e.key, e.hash); !ok && !yield(Change[K, V]{Key: e.key, New: e.value, Has: true}) {
			return false
		}
	}
	return true
}
