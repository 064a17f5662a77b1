package desired

import (
	"hash/maphash"
	"iter"
	"maps"
)

// Map is a persistent map: Set and Delete return a new Map that shares all but
// the touched parts with the old one, and Diff visits only the parts in which
// two maps differ. The zero value is an empty map. Keys are spread over 4,096
// parts, so a part holds about 250 objects at a million, and a change copies
// one part and two tables of 64 pointers.
type Map[K comparable, V comparable] struct {
	root *[fan]*middle[K, V]
	n    int
}

const fan = 64

type middle[K comparable, V comparable] [fan]*part[K, V]

// part is behind a pointer so that shared parts are recognised without a look inside.
type part[K comparable, V comparable] struct{ m map[K]V }

func (p *part[K, V]) get() map[K]V {
	if p == nil {
		return nil
	}
	return p.m
}

// seed is fixed for the process: two maps must agree where a key lives.
var seed = maphash.MakeSeed()

func slot[K comparable](k K) (int, int) {
	h := maphash.Comparable(seed, k)
	return int(h % fan), int(h / fan % fan)
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.n }

// Get returns the value at k.
func (m Map[K, V]) Get(k K) (V, bool) {
	var zero V
	if m.root == nil {
		return zero, false
	}
	i, j := slot(k)
	if m.root[i] == nil {
		return zero, false
	}
	v, ok := m.root[i][j].get()[k]
	return v, ok
}

// edit returns a copy of m whose part of k may be written, and that part.
func (m Map[K, V]) edit(k K) (Map[K, V], map[K]V) {
	i, j := slot(k)
	root := new([fan]*middle[K, V])
	if m.root != nil {
		*root = *m.root
	}
	mid := new(middle[K, V])
	if root[i] != nil {
		*mid = *root[i]
	}
	own := maps.Clone(mid[j].get())
	if own == nil {
		own = map[K]V{}
	}
	mid[j], root[i] = &part[K, V]{own}, mid
	return Map[K, V]{root, m.n}, own
}

// Set returns a map in which k has the value v. Setting an equal value returns
// m itself.
func (m Map[K, V]) Set(k K, v V) Map[K, V] {
	old, ok := m.Get(k)
	if ok && old == v {
		return m
	}
	out, part := m.edit(k)
	part[k] = v
	if !ok {
		out.n++
	}
	return out
}

// Delete returns a map without k.
func (m Map[K, V]) Delete(k K) Map[K, V] {
	if _, ok := m.Get(k); !ok {
		return m
	}
	out, part := m.edit(k)
	delete(part, k)
	out.n--
	return out
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
				for k, v := range p.get() {
					if !yield(k, v) {
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
				if x, y := a.part(j), b.part(j); x != y && !diffPart(x.get(), y.get(), yield) {
					return
				}
			}
		}
	}
}

func (m Map[K, V]) mid(i int) *middle[K, V] {
	if m.root == nil {
		return nil
	}
	return m.root[i]
}

func (d *middle[K, V]) part(j int) *part[K, V] {
	if d == nil {
		return nil
	}
	return d[j]
}

func diffPart[K comparable, V comparable](a, b map[K]V, yield func(Change[K, V]) bool) bool {
	for k, ov := range a {
		nv, ok := b[k]
		if ok && nv == ov {
			continue
		}
		if !yield(Change[K, V]{Key: k, Old: ov, New: nv, Had: true, Has: ok}) {
			return false
		}
	}
	for k, nv := range b {
		if _, ok := a[k]; !ok && !yield(Change[K, V]{Key: k, New: nv, Has: true}) {
			return false
		}
	}
	return true
}
