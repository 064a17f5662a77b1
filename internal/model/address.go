package model

import (
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strings"
)

// AddrRange is an inclusive range of addresses of one family; First <= Last.
// The zero value means "no range".
type AddrRange struct {
	First netip.Addr `json:"first,omitzero"`
	Last  netip.Addr `json:"last,omitzero"`
}

// IsValid reports whether the range is set.
func (r AddrRange) IsValid() bool { return r.First.IsValid() }

// Contains reports whether a lies in the range.
func (r AddrRange) Contains(a netip.Addr) bool {
	return r.IsValid() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

func (r AddrRange) String() string {
	if !r.IsValid() {
		return ""
	}
	return r.First.String() + "-" + r.Last.String()
}

// ParseAddrRange parses "a.b.c.d-a.b.c.e", first <= last, IPv4.
func ParseAddrRange(field, s string) (AddrRange, error) {
	want := "must be first-last, two IPv4 addresses in ascending order"
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return AddrRange{}, InvalidField(field, s, want)
	}
	first, err1 := netip.ParseAddr(a)
	last, err2 := netip.ParseAddr(b)
	if err1 != nil || err2 != nil || !first.Is4() || !last.Is4() || last.Less(first) {
		return AddrRange{}, InvalidField(field, s, want)
	}
	return AddrRange{first, last}, nil
}

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText writes the usual colon form.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads any form that net.ParseMAC takes, six bytes long.
func (m *MAC) UnmarshalText(b []byte) error {
	p, err := ParseMAC(string(b))
	if err == nil {
		*m = p
	}
	return err
}

// ParseMAC parses a six-byte Ethernet address. The error is of kind ErrInvalid.
func ParseMAC(s string) (MAC, error) {
	h, err := net.ParseMAC(s)
	if err != nil || len(h) != 6 {
		return MAC{}, InvalidField("macAddress", s, "must be six bytes such as 02:02:0a:01:01:02")
	}
	return MAC(h), nil
}

// Derived reports whether EndpointMAC could have made the address.
func (m MAC) Derived() bool { return m[0] == 2 && (m[1] == 2 || m[1] == 3) }

// Multicast reports whether it is a multicast address, broadcast included (IEEE 802
// section 8.2.2).
func (m MAC) Multicast() bool { return m[0]&1 != 0 }

// LinkLocal is the IPv6 link-local address derived from the MAC (RFC 4291 appendix A:
// modified EUI-64).
func (m MAC) LinkLocal() netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// EndpointMAC derives an endpoint's MAC: 02:02 and the IPv4 address, as in 1.x;
// without IPv4, 02:03 and a hash of network and IPv6 address (both are locally
// administered unicast, IEEE 802 section 8.2).
func EndpointMAC(n NetworkKey, v4, v6 netip.Addr) MAC {
	if v4.Is4() {
		a := v4.As4()
		return MAC{2, 2, a[0], a[1], a[2], a[3]}
	}
	return HashedMAC(n, v6, 0)
}

// HashedMAC is the try-th MAC, from 0, of an endpoint without IPv4: 02:03 and a
// hash of network and IPv6 address, which two endpoints can share.
func HashedMAC(n NetworkKey, v6 netip.Addr, try int) MAC {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s", n, v6)
	if try > 0 {
		fmt.Fprintf(h, " %d", try)
	}
	s := h.Sum32()
	return MAC{2, 3, byte(s >> 24), byte(s >> 16), byte(s >> 8), byte(s)}
}
