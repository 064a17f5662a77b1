package ipam

import (
	"encoding/binary"
	"math"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Space holds the used addresses of one subnet, and finds free ones.
//
// The search for a free address covers the first 2^36 addresses of a subnet;
// addresses beyond these (possible in IPv6) can be used when asked for by name.
type Space struct {
	prefix netip.Prefix
	base   netip.Addr
	used   Bits
	sparse map[netip.Addr]struct{} // used addresses beyond MaxBit
	last   map[string]netip.Addr   // by cursor: the address handed out last
}

// NewSpace returns the empty space of a subnet.
func NewSpace(prefix netip.Prefix) *Space {
	prefix = prefix.Masked()
	return &Space{prefix: prefix, base: prefix.Addr(), sparse: map[netip.Addr]struct{}{}, last: map[string]netip.Addr{}}
}

// Prefix returns the subnet.
func (s *Space) Prefix() netip.Prefix { return s.prefix }

// Len returns the number of used addresses.
func (s *Space) Len() int { return int(s.used.Len()) + len(s.sparse) }

// offset returns a's distance from the subnet's first address, and whether it
// is inside the subnet and within MaxBit.
func (s *Space) offset(a netip.Addr) (uint64, bool) {
	if !s.prefix.Contains(a) {
		return 0, false
	}
	if a.Is4() {
		x, y := a.As4(), s.base.As4()
		return uint64(binary.BigEndian.Uint32(x[:]) - binary.BigEndian.Uint32(y[:])), true
	}
	x, y := a.As16(), s.base.As16()
	hi := binary.BigEndian.Uint64(x[:8]) - binary.BigEndian.Uint64(y[:8])
	lo, ylo := binary.BigEndian.Uint64(x[8:]), binary.BigEndian.Uint64(y[8:])
	if lo < ylo {
		hi--
	}
	lo -= ylo
	return lo, hi == 0 && lo <= MaxBit
}

// at is the inverse of offset.
func (s *Space) at(i uint64) netip.Addr {
	if s.base.Is4() {
		b := s.base.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(i))
		return netip.AddrFrom4(b)
	}
	b := s.base.As16()
	lo := binary.BigEndian.Uint64(b[8:])
	if lo > math.MaxUint64-i {
		binary.BigEndian.PutUint64(b[:8], binary.BigEndian.Uint64(b[:8])+1)
	}
	binary.BigEndian.PutUint64(b[8:], lo+i)
	return netip.AddrFrom16(b)
}

// Has reports whether a is used.
func (s *Space) Has(a netip.Addr) bool {
	if i, ok := s.offset(a); ok {
		return s.used.Has(i)
	}
	_, ok := s.sparse[a]
	return ok
}

// Add marks a as used and tells whether it was free. An address outside the
// subnet counts like any other.
func (s *Space) Add(a netip.Addr) bool {
	if i, ok := s.offset(a); ok {
		return s.used.Add(i)
	}
	_, had := s.sparse[a]
	s.sparse[a] = struct{}{}
	return !had
}

// Remove marks a as free and tells whether it was used.
func (s *Space) Remove(a netip.Addr) bool {
	if i, ok := s.offset(a); ok {
		return s.used.Remove(i)
	}
	_, had := s.sparse[a]
	delete(s.sparse, a)
	return had
}

// Next finds a free address in allowed, after the one that the same cursor
// found last, beginning again at the front; it does not mark it as used. The
// result is false when all are used.
func (s *Space) Next(cursor string, allowed Ranges) (netip.Addr, bool) {
	from := s.last[cursor]
	if from.IsValid() {
		if a, ok := s.search(allowed, from.Next()); ok {
			s.last[cursor] = a
			return a, true
		}
	}
	a, ok := s.search(allowed, s.base)
	if ok {
		s.last[cursor] = a
	}
	return a, ok
}

// SetCursor moves a cursor to an address that somebody else handed out.
func (s *Space) SetCursor(cursor string, a netip.Addr) { s.last[cursor] = a }

// search returns the lowest free address in allowed at or after from.
func (s *Space) search(allowed Ranges, from netip.Addr) (netip.Addr, bool) {
	if !from.IsValid() {
		return netip.Addr{}, false
	}
	for _, r := range allowed {
		if r.Last.Less(from) {
			continue
		}
		first := r.First
		if first.Less(from) {
			first = from
		}
		lo, ok := s.offset(first)
		if !ok {
			continue
		}
		hi, ok := s.offset(r.Last)
		if !ok {
			hi = MaxBit
		}
		if i, ok := s.used.NextFree(lo, hi); ok {
			return s.at(i), true
		}
	}
	return netip.Addr{}, false
}

// Used returns the used addresses inside r.
func (s *Space) Used(r model.AddrRange) Ranges {
	var out []model.AddrRange
	for a := range s.sparse {
		if r.Contains(a) {
			out = append(out, model.AddrRange{First: a, Last: a})
		}
	}
	lo, ok := s.offset(r.First)
	if !ok {
		return Union(out...)
	}
	hi, ok := s.offset(r.Last)
	if !ok {
		hi = MaxBit
	}
	for {
		first, ok := s.used.NextUsed(lo, hi)
		if !ok {
			return Union(out...)
		}
		end, ok := s.used.NextFree(first, hi)
		if !ok {
			return Union(append(out, model.AddrRange{First: s.at(first), Last: s.at(hi)})...)
		}
		out = append(out, model.AddrRange{First: s.at(first), Last: s.at(end - 1)})
		lo = end
	}
}
