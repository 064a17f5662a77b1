package ipam

import (
	"strconv"
	"strings"
)

// Numbers holds the used numbers of a kind and finds free ones. The zero value
// has none used.
type Numbers struct {
	used Bits
	last uint32
}

// Add marks n as used and tells whether it was free.
func (s *Numbers) Add(n uint32) bool { return s.used.Add(uint64(n)) }

// Remove marks n as free and tells whether it was used.
func (s *Numbers) Remove(n uint32) bool { return s.used.Remove(uint64(n)) }

// Has reports whether n is used.
func (s *Numbers) Has(n uint32) bool { return s.used.Has(uint64(n)) }

// Len returns how many are used.
func (s *Numbers) Len() int { return int(s.used.Len()) }

// SetCursor makes the next search begin after n.
func (s *Numbers) SetCursor(n uint32) { s.last = n }

// Next finds a free number in [lo, hi] after the one found last, beginning
// again at lo; it does not mark it as used. The result is false when all are.
func (s *Numbers) Next(lo, hi uint32) (uint32, bool) {
	from := uint64(lo)
	if s.last >= lo && s.last < hi {
		from = uint64(s.last) + 1
	}
	n, ok := s.used.NextFree(from, uint64(hi))
	if !ok {
		n, ok = s.used.NextFree(uint64(lo), uint64(hi))
	}
	if ok {
		s.last = uint32(n)
	}
	return uint32(n), ok
}

// Outside returns a used number outside [lo, hi], if there is one.
func (s *Numbers) Outside(lo, hi uint32) (uint32, bool) {
	if n, ok := s.used.NextUsed(0, uint64(lo)-1); lo > 0 && ok {
		return uint32(n), true
	}
	n, ok := s.used.NextUsed(uint64(hi)+1, MaxBit)
	return uint32(n), ok
}

// String lists the used numbers: "1-4, 6-7, 5000".
func (s *Numbers) String() string {
	var b strings.Builder
	for lo := uint64(0); ; {
		first, ok := s.used.NextUsed(lo, MaxBit)
		if !ok {
			return b.String()
		}
		end, ok := s.used.NextFree(first, MaxBit)
		if !ok {
			return b.String()
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatUint(first, 10))
		if end-1 > first {
			b.WriteByte('-')
			b.WriteString(strconv.FormatUint(end-1, 10))
		}
		lo = end
	}
}
