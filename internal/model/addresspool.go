package model

import (
	"net/netip"
	"slices"
	"strings"
)

// AddressPool is addresses of both families to be given out: ascending, disjoint
// ranges.
type AddressPool []AddrRange

// maxPoolRanges is of how many ranges a pool may be.
const maxPoolRanges = 256

// ParseAddressPool parses blocks, of which an IPv4 one's network and broadcast address
// and an IPv6 one's first address are left out, single addresses, and ranges
// "first-last". The error is of kind ErrInvalid.
func ParseAddressPool(field string, texts []string) (AddressPool, error) {
	var out AddressPool
	for _, text := range texts {
		r, ok := parsePoolRange(text)
		if !ok || !IsServiceAddr(r.First) || !IsServiceAddr(r.Last) {
			return nil, InvalidField(field, text, "must be a block such as 203.0.113.0/24, an address, or first-last of one family; no multicast, loopback or link-local")
		}
		out = append(out, r)
	}
	if len(out) > maxPoolRanges {
		return nil, InvalidField(field, len(out), "must be at most "+itoa(maxPoolRanges)+" blocks and ranges")
	}
	slices.SortFunc(out, func(a, b AddrRange) int { return a.First.Compare(b.First) })
	for i := 1; i < len(out); i++ {
		if a, b := out[i-1], out[i]; a.Last.Is4() == b.First.Is4() && a.Last.Compare(b.First) >= 0 {
			return nil, InvalidField(field, b, "overlaps "+a.String())
		}
	}
	return out, nil
}

func parsePoolRange(text string) (AddrRange, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return HostRange(p), p == p.Masked() && !p.Addr().Is4In6()
	}
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	a, err := netip.ParseAddr(first)
	b, err2 := netip.ParseAddr(last)
	return AddrRange{a, b}, err == nil && err2 == nil && a.Is4() == b.Is4() && a.Compare(b) <= 0
}

// Contains reports whether an address is the pool's.
func (p AddressPool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(r AddrRange) bool { return r.Contains(a) })
}

// Has reports whether the pool has addresses of a family.
func (p AddressPool) Has(v6 bool) bool {
	return slices.ContainsFunc(p, func(r AddrRange) bool { return r.First.Is6() == v6 })
}

// From returns the addresses of a family, those behind one first, then from the
// lowest up to it; the zero address is before all.
func (p AddressPool) From(after netip.Addr, v6 bool) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		behind := func(a netip.Addr) bool { return !after.IsValid() || after.Less(a) }
		for _, second := range []bool{false, true} {
			for _, r := range p {
				if r.First.Is6() != v6 {
					continue
				}
				a := r.First
				if !second && !behind(a) && r.Contains(after) {
					a = after.Next()
				}
				for ; a.IsValid() && a.Compare(r.Last) <= 0; a = a.Next() {
					if behind(a) == second {
						break // all that follow are of the other turn
					}
					if !yield(a) {
						return
					}
				}
			}
		}
	}
}
