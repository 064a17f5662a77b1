package reachability

import (
	"net/netip"
	"slices"
)

// split answers for all addresses of a prefix: it halves the prefix until none of the bounds
// lies within, has answer tell of one address of each part, and puts halves together again
// where merge finds one answer for both. Addresses ascend.
func split[T any](p netip.Prefix, bounds []netip.Prefix, answer func(netip.Addr) T, merge func(a, b T) (T, bool)) (out []partOf[T]) {
	p = p.Masked()
	inside := slices.DeleteFunc(slices.Clone(bounds), func(b netip.Prefix) bool { return b.Bits() <= p.Bits() || !p.Contains(b.Addr()) })
	if len(inside) == 0 {
		return []partOf[T]{{p, answer(p.Addr())}}
	}
	low, high := halves(p)
	out = split(low, inside, answer, merge)
	upper := split(high, inside, answer, merge)
	if len(out) == 1 && len(upper) == 1 {
		if both, ok := merge(out[0].answer, upper[0].answer); ok {
			return []partOf[T]{{p, both}}
		}
	}
	return append(out, upper...)
}

// splitBeside is split, but answer is called for an address of each part that is not taken, if
// there is one.
func splitBeside[T any](p netip.Prefix, bounds []netip.Prefix, taken func(netip.Addr) bool, answer func(netip.Addr) T, merge func(a, b T) (T, bool)) []partOf[T] {
	free := map[netip.Addr]netip.Addr{} // by the first address of the part
	never := func(a, _ struct{}) (struct{}, bool) { return a, false }
	for _, part := range split(p, bounds, func(netip.Addr) (none struct{}) { return none }, never) {
		first := part.prefix.Addr()
		a := first
		for taken(a) && part.prefix.Contains(a.Next()) {
			a = a.Next()
		}
		free[first] = a
	}
	return split(p, bounds, func(a netip.Addr) T { return answer(free[a]) }, merge)
}

// partOf is a prefix with the answer for all of its addresses.
type partOf[T any] struct {
	prefix netip.Prefix
	answer T
}

// halves are the two prefixes that a prefix consists of; it has more than one address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	raw := p.Addr().AsSlice()
	raw[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(raw) // as long as an address is
	return netip.PrefixFrom(p.Addr(), bits), netip.PrefixFrom(upper, bits)
}
