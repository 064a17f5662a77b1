package ipam

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Ranges is a set of addresses of one family: ascending, disjoint ranges.
type Ranges []model.AddrRange

// One returns the set of a single address, or the empty set for an invalid one.
func One(a netip.Addr) Ranges {
	if !a.IsValid() {
		return nil
	}
	return Ranges{{First: a, Last: a}}
}

// Union returns the set of all addresses in any of the ranges, which may be in
// any order and overlap; adjacent ones are joined.
func Union(rs ...model.AddrRange) Ranges {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r model.AddrRange) bool { return !r.IsValid() })
	slices.SortFunc(rs, func(a, b model.AddrRange) int { return a.First.Compare(b.First) })
	var out Ranges
	for _, r := range rs {
		if n := len(out); n > 0 {
			last := &out[n-1]
			if next := last.Last.Next(); !next.IsValid() || r.First.Compare(next) <= 0 {
				if last.Last.Less(r.Last) {
					last.Last = r.Last
				}
				continue
			}
		}
		out = append(out, r)
	}
	return out
}

// Minus returns the addresses of r that are not in cut.
func (r Ranges) Minus(cut Ranges) Ranges {
	var out Ranges
	i := 0
	for _, a := range r {
		for i < len(cut) && cut[i].Last.Less(a.First) {
			i++
		}
		first := a.First
		alive := true
		for j := i; j < len(cut) && cut[j].First.Compare(a.Last) <= 0; j++ {
			if first.Less(cut[j].First) {
				out = append(out, model.AddrRange{First: first, Last: cut[j].First.Prev()})
			}
			if a.Last.Compare(cut[j].Last) <= 0 {
				alive = false
				break
			}
			if next := cut[j].Last.Next(); first.Less(next) {
				first = next
			}
		}
		if alive {
			out = append(out, model.AddrRange{First: first, Last: a.Last})
		}
	}
	return out
}

// Contains reports whether a is in the set.
func (r Ranges) Contains(a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(r, a, func(x model.AddrRange, a netip.Addr) int { return x.First.Compare(a) })
	return found || i > 0 && r[i-1].Contains(a)
}

// Size returns how many addresses are in the set, at most the largest number.
func (r Ranges) Size() (n uint64) {
	for _, x := range r {
		first, last := x.First.As16(), x.Last.As16()
		low, borrow := bits.Sub64(binary.BigEndian.Uint64(last[8:]), binary.BigEndian.Uint64(first[8:]), 0)
		high, _ := bits.Sub64(binary.BigEndian.Uint64(last[:8]), binary.BigEndian.Uint64(first[:8]), borrow)
		sum, carry := bits.Add64(n, low, 1)
		if high != 0 || carry != 0 {
			return math.MaxUint64
		}
		n = sum
	}
	return n
}

// String is the form that clients know: "10.1.1.1-10.1.1.3, 10.1.1.9".
func (r Ranges) String() string {
	var b strings.Builder
	for i, x := range r {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(x.First.String())
		if x.First != x.Last {
			b.WriteByte('-')
			b.WriteString(x.Last.String())
		}
	}
	return b.String()
}
