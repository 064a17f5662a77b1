package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// reserved are the blocks that no network of containers may overlap, because
// hosts treat their addresses specially (IANA special-purpose registries, RFC 6890).
var reserved = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), `"this network" (RFC 791)`},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback (RFC 1122)"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local (RFC 3927)"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast (RFC 5771)"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved (RFC 1112)"},
	{netip.MustParsePrefix("::/8"), "unspecified, loopback and IPv4-mapped addresses (RFC 4291)"},
	{netip.MustParsePrefix("fe80::/10"), "link-local (RFC 4291)"},
	{netip.MustParsePrefix("ff00::/8"), "multicast (RFC 4291)"},
}

// checkReserved refuses a prefix that overlaps a reserved block.
func checkReserved(field, text string, p netip.Prefix) error {
	for _, r := range reserved {
		if p.Overlaps(r.prefix) {
			return InvalidField(field, text, fmt.Sprintf("must not overlap %s, which is %s", r.prefix, r.why))
		}
	}
	return nil
}

// ParseAddr4 parses an IPv4 address in dotted form. The error is of kind ErrInvalid.
func ParseAddr4(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is4() {
		return netip.Addr{}, InvalidField(field, s, "must be an IPv4 address such as 10.1.1.2")
	}
	return a, nil
}

// ParseAddr6 parses an IPv6 address without zone that is not an IPv4-mapped
// one. The error is of kind ErrInvalid.
func ParseAddr6(field, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Is4In6() || a.Zone() != "" {
		return netip.Addr{}, InvalidField(field, s, "must be an IPv6 address such as 2001:db8::2")
	}
	return a, nil
}

// ParseSubnet4 parses "a.b.c.d/len", or "a.b.c.d-a.b.c.e/len" which also limits
// automatic allocation to the range. Without a range, bits beyond the length
// are refused. The range, if any,
// lies inside the prefix and holds none of its unusable addresses. The error
// is of kind ErrInvalid.
func ParseSubnet4(field, s string) (netip.Prefix, AddrRange, error) {
	bad := func(want string) (netip.Prefix, AddrRange, error) {
		return netip.Prefix{}, AddrRange{}, InvalidField(field, s, want)
	}
	const want = "must be an IPv4 subnet such as 10.1.1.0/24, or a range in one such as 10.1.1.10-10.1.1.50/24"
	addrs, bits, ok := strings.Cut(s, "/")
	first, last, isRange := strings.Cut(addrs, "-")
	if !ok {
		return bad(want)
	}
	p, err := netip.ParsePrefix(first + "/" + bits)
	if err != nil || !p.Addr().Is4() || p.Bits() == 0 {
		return bad(want)
	}
	subnet := p.Masked()
	if err := checkReserved(field, s, subnet); err != nil {
		return netip.Prefix{}, AddrRange{}, err
	}
	if !isRange {
		if p != subnet {
			return bad(wantMasked(subnet))
		}
		return subnet, AddrRange{}, nil
	}
	end, err := netip.ParseAddr(last)
	if err != nil || !end.Is4() {
		return bad(want)
	}
	r := AddrRange{p.Addr(), end}
	if why := rangeFault(subnet, r); why != "" {
		return bad(why)
	}
	return subnet, r, nil
}

// FormatSubnet4 is the inverse of ParseSubnet4.
func FormatSubnet4(p netip.Prefix, r AddrRange) string {
	switch {
	case !p.IsValid():
		return ""
	case r.IsValid():
		return fmt.Sprintf("%s/%d", r, p.Bits())
	}
	return p.String()
}

// ParseSubnet6 parses an IPv6 subnet with a length of 1 to 128 and no bits
// beyond it. The error is of kind ErrInvalid.
func ParseSubnet6(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is6() || p.Addr().Is4In6() || p.Bits() == 0 {
		return netip.Prefix{}, InvalidField(field, s, "must be an IPv6 subnet such as 2001:db8:1::/64")
	}
	if p != p.Masked() {
		return netip.Prefix{}, InvalidField(field, s, wantMasked(p.Masked()))
	}
	return p, checkReserved(field, s, p)
}

// wantMasked refuses a subnet with bits beyond its length: 1.x kept them in the
// object and dropped them in its state (known fault 22).
func wantMasked(p netip.Prefix) string {
	return "has address bits beyond its length; the subnet is " + p.String()
}

// ParsePvtSubnet parses the hosts' private subnet: IPv4, length 16.
func ParsePvtSubnet(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() != 16 {
		return netip.Prefix{}, InvalidField("pvtSubnet", s, "must be an IPv4 subnet of length 16 such as 172.19.0.0/16")
	}
	p = p.Masked()
	return p, checkReserved("pvtSubnet", s, p)
}

// PvtSubnet6 are the private addresses of IPv6: the last 32 bits are those of the
// IPv4 ones (pvtSubnet), so that nothing more is given out. The 40 bits after fd were
// drawn once (RFC 4193 section 3.2).
var PvtSubnet6 = netip.MustParsePrefix("fd6d:809b:d5b4::/96")

// ParsePeerAddr parses the address of a rule: an IPv4 or IPv6 address, which
// becomes a prefix of full length, or a CIDR, whose host bits are masked off.
func ParsePeerAddr(field, s string) (netip.Prefix, error) {
	const want = "must be an IPv4 or IPv6 address or CIDR such as 10.1.1.2, 10.1.0.0/16 or 2001:db8::/64"
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil || p.Addr().Is4In6() {
			return netip.Prefix{}, InvalidField(field, s, want)
		}
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" || a.Is4In6() {
		return netip.Prefix{}, InvalidField(field, s, want)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

// ParsePeerCIDR is ParsePeerAddr for network policies, which 1.x had none of: a
// CIDR with host bits is refused.
func ParsePeerCIDR(field, s string) (netip.Prefix, error) {
	p, err := ParsePeerAddr(field, s)
	if given, bad := netip.ParsePrefix(s); err == nil && bad == nil && given != p {
		return netip.Prefix{}, InvalidField(field, s, wantMasked(p))
	}
	return p, err
}

// HostRange returns the first and last address of a subnet that an endpoint or
// gateway may have. IPv4 keeps back the network and broadcast addresses except
// in a /31 (RFC 3021) and a /32; IPv6 keeps back the subnet-router anycast
// address (RFC 4291 section 2.6.1) except in a /127 (RFC 6164) and a /128.
func HostRange(p netip.Prefix) AddrRange {
	first, last := p.Masked().Addr(), LastAddr(p)
	if p.Bits() < p.Addr().BitLen()-1 {
		first = first.Next()
		if p.Addr().Is4() {
			last = last.Prev()
		}
	}
	return AddrRange{first, last}
}

// LastAddr returns the highest address of a prefix.
func LastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// rangeFault says what is wrong with a range of allocatable addresses in a
// subnet, or "".
func rangeFault(subnet netip.Prefix, r AddrRange) string {
	switch hosts := HostRange(subnet); {
	case r.Last.Less(r.First):
		return "must have its first address at or before its last"
	case !subnet.Contains(r.First) || !subnet.Contains(r.Last):
		return fmt.Sprintf("must lie inside the subnet %s", subnet)
	case !hosts.Contains(r.First) || !hosts.Contains(r.Last):
		return fmt.Sprintf("must not contain the network or broadcast address of %s; usable are %s", subnet, hosts)
	}
	return ""
}

// checkGateway checks a gateway against its subnet.
func checkGateway(field string, gw netip.Addr, subnetField string, subnet netip.Prefix) error {
	if !gw.IsValid() {
		return nil
	}
	if !subnet.IsValid() {
		return InvalidField(field, gw, "must be empty when "+subnetField+" is")
	}
	hosts := HostRange(subnet)
	switch {
	case !subnet.Contains(gw):
		return InvalidField(field, gw, fmt.Sprintf("must lie inside the subnet %s", subnet))
	case hosts.First == hosts.Last:
		return InvalidField(field, gw, fmt.Sprintf("must be empty: %s has no second address", subnet))
	case !hosts.Contains(gw):
		return InvalidField(field, gw, fmt.Sprintf("must not be the network or broadcast address; usable are %s", hosts))
	}
	return nil
}
