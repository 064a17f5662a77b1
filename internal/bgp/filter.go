package bgp

import (
	"net/netip"
	"slices"
)

// Reasons why a learned route is not accepted; they are values of a metric's label.
const (
	ReasonProtected = "protected" // it overlaps what is protected
	ReasonDefault   = "default"   // it is the default route, which was not asked for
	ReasonOwn       = "own"       // the host announces the very prefix
	ReasonNextHop   = "next-hop"  // no packet could be sent there
	ReasonSpecial   = "special"   // loopback, link-local or multicast
)

// filter tells which prefixes may be learned.
type filter struct {
	exact    map[netip.Prefix]bool
	sorted   []netip.Addr // first addresses of the protected prefixes
	defaults bool
}

func newFilter(protected []netip.Prefix, defaults bool) *filter {
	f := &filter{exact: make(map[netip.Prefix]bool, len(protected)), defaults: defaults}
	for _, p := range protected {
		if !p.IsValid() {
			continue
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()).Masked()
		if p.IsValid() && !f.exact[p] {
			f.exact[p] = true
			f.sorted = append(f.sorted, p.Addr())
		}
	}
	slices.SortFunc(f.sorted, netip.Addr.Compare)
	return f
}

// refuses says why p, which is masked, may not be learned; "" = it may.
func (f *filter) refuses(p netip.Prefix) string {
	if p.Bits() == 0 {
		if f.defaults {
			return ""
		}
		return ReasonDefault
	}
	a := p.Addr()
	if a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsLinkLocalMulticast() || a.Is4In6() || a.IsUnspecified() {
		return ReasonSpecial
	}
	for bits := range p.Bits() + 1 {
		if f.exact[netip.PrefixFrom(a, bits).Masked()] {
			return ReasonProtected
		}
	}
	// A protected prefix within p begins in it.
	i, _ := slices.BinarySearchFunc(f.sorted, a, netip.Addr.Compare)
	if i < len(f.sorted) && p.Contains(f.sorted[i]) {
		return ReasonProtected
	}
	return ""
}

// usable tells whether packets for p can be sent to a next hop, which is not
// one of the host's own addresses.
func usable(p netip.Prefix, hop netip.Addr, own map[netip.Addr]bool) bool {
	return hop.IsValid() && hop.Is4() == p.Addr().Is4() && hop != p.Addr() && !own[hop] &&
		!hop.IsUnspecified() && !hop.IsLoopback() && !hop.IsMulticast() && !hop.IsLinkLocalUnicast()
}
