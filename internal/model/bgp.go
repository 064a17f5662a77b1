package model

import (
	"net/netip"
	"strconv"
)

var _ = register(Kind{
	Collection: "Bgps", Name: "Bgp", Order: 100,
	NoEffects: []NoEffect{
		{
			Hosts: "the one that it names",
			Text:  "BGP settings are kept and have no effect yet: hosts run no router",
			set:   in(every[Bgp]),
		},
	},
})

// MaxHostName is the length limit of hosts' names, in characters.
const MaxHostName = 256

// Bgp makes a host speak BGP with a router of its physical network.
type Bgp struct {
	Host       HostName     `json:"host"`
	RouterIP   netip.Prefix `json:"routerIP"`          // the host's address in the router's network, with the prefix length; not masked
	AS         uint32       `json:"as"`                // of the host; 1-4294967295 (RFC 6793)
	NeighborAS uint32       `json:"neighborAS"`        // of the router
	Neighbor   netip.Addr   `json:"neighbor,omitzero"` // IPv4 address of the router; zero = none yet
}

// ParseAS parses an autonomous system's number. The error is of kind ErrInvalid.
func ParseAS(field, s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, InvalidField(field, s, "must be an AS number between 1 and 4294967295")
	}
	return uint32(n), nil
}

// ParseRouterIP parses an IPv4 address with its prefix length, which is kept
// with its host bits. The error is of kind ErrInvalid.
func ParseRouterIP(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() == 0 || !HostRange(p).Contains(p.Addr()) {
		return netip.Prefix{}, InvalidField("routerip", s, "must be an IPv4 address with its prefix length such as 50.1.1.2/24, and not its network or broadcast address")
	}
	return p, checkReserved("routerip", s, netip.PrefixFrom(p.Addr(), 32))
}

// ParseNeighbor parses a router's IPv4 address. The error is of kind ErrInvalid.
func ParseNeighbor(s string) (netip.Addr, error) {
	a, err := ParseAddr4("neighbor", s)
	if err != nil {
		return a, err
	}
	return a, checkReserved("neighbor", s, netip.PrefixFrom(a, 32))
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (b Bgp) Validate() error {
	if err := parseName("hostname", string(b.Host), MaxHostName); err != nil {
		return err
	}
	if _, err := ParseRouterIP(b.RouterIP.String()); err != nil {
		return err
	}
	if b.AS == 0 {
		return InvalidField("as", b.AS, "must be an AS number between 1 and 4294967295")
	}
	if b.NeighborAS == 0 {
		return InvalidField("neighbor-as", b.NeighborAS, "must be an AS number between 1 and 4294967295")
	}
	if !b.Neighbor.IsValid() {
		return nil
	}
	if _, err := ParseNeighbor(b.Neighbor.String()); err != nil {
		return err
	}
	if b.Neighbor == b.RouterIP.Addr() {
		return InvalidField("neighbor", b.Neighbor, "must not be the host's own address")
	}
	return nil
}
