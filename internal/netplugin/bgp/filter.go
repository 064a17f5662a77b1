package bgp

import (
	"net/netip"
	"slices"
)

// Reasons why a learned route is not accepted; they are values of a metric's label.
const (
	ReasonProtected = "protected" // it overlaps what is protected, or is within a network of the host's
	ReasonDefault   = "default"   // it is the default route, which was not asked for
	ReasonOwn       = "own"       // the host announces the very prefix
	ReasonNextHop   = "next-hop"  // no packet could be sent there
	ReasonSpecial   = "special"   // it overlaps loopback, link-local, multicast or reserved addresses
)

// special are prefixes that no route leads into, nor over.
var special = newPrefixes([]netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved, broadcast
	netip.MustParsePrefix("::/127"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
})

// filter tells which prefixes may be learned.
type filter struct {
	protected, links *prefixes
	defaults         bool
}

func newFilter(protected, links []netip.Prefix, defaults bool) *filter {
	return &filter{protected: newPrefixes(protected), links: newPrefixes(links), defaults: defaults}
}

// whyRefused says why p, which is masked, may not be learned; "" = it may.
func (f *filter) whyRefused(p netip.Prefix) string {
	switch {
	case p.Bits() == 0 && f.defaults:
		return ""
	case p.Bits() == 0:
		return ReasonDefault
	case special.cover(p) || special.within(p) || p.Addr().Is4In6():
		return ReasonSpecial
	case f.protected.cover(p) || f.protected.within(p) || f.links.cover(p):
		return ReasonProtected
	}
	return ""
}

// prefixes finds the prefixes that overlap another one.
type prefixes struct {
	exact  map[netip.Prefix]bool
	sorted []netip.Addr // their first addresses
}

func newPrefixes(list []netip.Prefix) *prefixes {
	s := &prefixes{exact: make(map[netip.Prefix]bool, len(list))}
	for _, p := range list {
		if !p.IsValid() {
			continue
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()).Masked()
		if p.IsValid() && !s.exact[p] {
			s.exact[p] = true
			s.sorted = append(s.sorted, p.Addr())
		}
	}
	slices.SortFunc(s.sorted, netip.Addr.Compare)
	return s
}

// cover reports whether one of s has all of p.
func (s *prefixes) cover(p netip.Prefix) bool {
	for bits := range p.Bits() + 1 {
		if s.exact[netip.PrefixFrom(p.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}

// within reports whether one of s begins in p, as one does that is in it.
func (s *prefixes) within(p netip.Prefix) bool {
	i, _ := slices.BinarySearchFunc(s.sorted, p.Addr(), netip.Addr.Compare)
	return i < len(s.sorted) && p.Contains(s.sorted[i])
}

// usable reports whether packets for p can be sent to a next hop, which is not
// one of the host's own addresses.
func usable(p netip.Prefix, hop netip.Addr, own map[netip.Addr]bool) bool {
	return hop.IsValid() && hop.Is4() == p.Addr().Is4() && hop != p.Addr() && !own[hop] &&
		!hop.IsUnspecified() && !hop.IsLoopback() && !hop.IsMulticast() && !hop.IsLinkLocalUnicast()
}
