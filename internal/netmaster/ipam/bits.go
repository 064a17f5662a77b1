package ipam

import "math/bits"

// Bits is a set of positions, held as a tree of 64-bit words that has nodes only
// above positions that are set. The zero value is an empty set. Positions above MaxBit are
// not allowed.
type Bits struct {
	root *node
	n    uint64
}

const (
	levels = 6
	// MaxBit is the highest position of a Bits.
	MaxBit = 1<<(6*levels) - 1
)

// node covers 64 children, or 64 positions at the lowest level.
type node struct {
	full uint64 // bit i: all positions of child i are set
	any  uint64 // bit i: some position of child i is set
	kids *[64]*node
}

// Len returns the number of positions set.
func (b *Bits) Len() uint64 { return b.n }

// Has reports whether position i is set.
func (b *Bits) Has(i uint64) bool {
	nd := b.root
	for l := levels - 1; nd != nil; l-- {
		bit := uint64(1) << (i >> (6 * l) & 63)
		if nd.full&bit != 0 {
			return true
		}
		if nd.any&bit == 0 || l == 0 {
			return false
		}
		nd = nd.kids[i>>(6*l)&63]
	}
	return false
}

// Add sets position i and tells whether it was free.
func (b *Bits) Add(i uint64) bool {
	if b.Has(i) {
		return false
	}
	if b.root == nil {
		b.root = &node{}
	}
	b.n++
	b.root.add(i, levels-1)
	return true
}

func (nd *node) add(i uint64, l int) {
	slot := i >> (6 * l) & 63
	bit := uint64(1) << slot
	nd.any |= bit
	if l == 0 {
		nd.full |= bit
		return
	}
	if nd.kids == nil {
		nd.kids = new([64]*node)
	}
	kid := nd.kids[slot]
	if kid == nil {
		kid = &node{}
		nd.kids[slot] = kid
	}
	if kid.add(i, l-1); kid.full == ^uint64(0) {
		nd.full |= bit
	}
}

// Remove clears position i and tells whether it was set.
func (b *Bits) Remove(i uint64) bool {
	if !b.Has(i) {
		return false
	}
	b.n--
	b.root.remove(i, levels-1)
	return true
}

func (nd *node) remove(i uint64, l int) {
	slot := i >> (6 * l) & 63
	bit := uint64(1) << slot
	nd.full &^= bit
	if l == 0 {
		nd.any &^= bit
		return
	}
	kid := nd.kids[slot]
	if kid.remove(i, l-1); kid.any == 0 {
		nd.any &^= bit
		nd.kids[slot] = nil
	}
}

// NextFree returns the lowest free position in [from, to].
func (b *Bits) NextFree(from, to uint64) (uint64, bool) {
	if from > to || from > MaxBit {
		return 0, false
	}
	i, ok := b.root.next(from, levels-1, true)
	return i, ok && i <= to
}

// NextUsed returns the lowest set position in [from, to].
func (b *Bits) NextUsed(from, to uint64) (uint64, bool) {
	if from > to || from > MaxBit {
		return 0, false
	}
	i, ok := b.root.next(from, levels-1, false)
	return i, ok && i <= to
}

// next finds the lowest position at or after from, among those under nd at
// level l (from counts within nd), that is free or used as asked.
func (nd *node) next(from uint64, l int, free bool) (uint64, bool) {
	if nd == nil {
		return from, free
	}
	slot := from >> (6 * l) & 63
	low := from & (1<<(6*l) - 1)
	candidates := nd.any
	if free {
		candidates = ^nd.full
	}
	for m := candidates &^ (1<<slot - 1); m != 0; m &= m - 1 {
		s := uint64(bits.TrailingZeros64(m))
		if s != slot {
			low = 0
		}
		if l == 0 {
			return s, true
		}
		var kid *node
		if nd.kids != nil {
			kid = nd.kids[s]
		}
		if i, ok := kid.next(low, l-1, free); ok {
			return s<<(6*l) | i, true
		}
	}
	return 0, false
}
