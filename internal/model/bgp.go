package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

var _ = register(Kind{Collection: "Bgps", Name: "Bgp", Order: 100})

// MaxHostName is the length limit of hosts' names, in characters.
const MaxHostName = 256

// Bounds of BGP settings.
const (
	MaxBgpRouters  = 16        // neighbors of a host
	MaxBgpPassword = 80        // characters: TCP_MD5SIG_MAXKEYLEN of linux/tcp.h
	MaxBgpPrefixes = 1_000_000 // that a neighbor may be allowed to tell of
)

// PasswordKept stands for a password wherever one is shown, and in a change for
// the one that is there.
const PasswordKept = "********"

// Bgp makes a host speak BGP with routers of its physical network.
type Bgp struct {
	Host        HostName     `json:"host"`
	RouterIP    netip.Prefix `json:"routerIP"`             // the host's address in the router's network, with the prefix length; not masked
	RouterIP6   netip.Prefix `json:"routerIP6,omitzero"`   // the same of IPv6; zero = routes of IPv6 are not spoken of
	AS          uint32       `json:"as"`                   // of the host; 1-4294967295 (RFC 6793)
	NeighborAS  uint32       `json:"neighborAS"`           // of the router
	Neighbor    netip.Addr   `json:"neighbor,omitzero"`    // IPv4 address of the router; zero = none yet
	More        []BgpRouter  `json:"more,omitempty"`       // routers beside Neighbor, by address
	Password    string       `json:"password,omitempty"`   // TCP MD5 signatures (RFC 2385) with all of them; never shown
	MaxPrefixes uint32       `json:"maxPrefixes,omitzero"` // of each family that a router may tell of; 0 = 10,000
	Default     bool         `json:"default,omitempty"`    // the default route is learned too
	NoBFD       bool         `json:"noBFD,omitempty"`      // failure is detected by BGP alone
}

// BgpRouter is a router that a host speaks BGP with.
type BgpRouter struct {
	Address netip.Addr `json:"address"`
	AS      uint32     `json:"as"`
}

// Equal reports whether two settings are the same.
func (b Bgp) Equal(o Bgp) bool {
	return b.Host == o.Host && b.RouterIP == o.RouterIP && b.RouterIP6 == o.RouterIP6 && b.AS == o.AS && b.NeighborAS == o.NeighborAS &&
		b.Neighbor == o.Neighbor && slices.Equal(b.More, o.More) && b.Password == o.Password && b.MaxPrefixes == o.MaxPrefixes &&
		b.Default == o.Default && b.NoBFD == o.NoBFD
}

// Routers are all that the host speaks with, 1.x' one first.
func (b Bgp) Routers() (out []BgpRouter) {
	if b.Neighbor.IsValid() {
		out = append(out, BgpRouter{b.Neighbor, b.NeighborAS})
	}
	return append(out, b.More...)
}

// Networks returns the networks in which the host speaks BGP, and its routers' addresses.
func (b Bgp) Networks() (out []netip.Prefix) {
	for _, p := range []netip.Prefix{b.RouterIP, b.RouterIP6} {
		if p.IsValid() {
			out = append(out, p.Masked())
		}
	}
	for _, r := range b.Routers() {
		out = append(out, netip.PrefixFrom(r.Address, r.Address.BitLen()))
	}
	return out
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

// ParseRouterIP6 is ParseRouterIP for IPv6.
func ParseRouterIP6(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !usable6(p.Addr()) || p.Bits() == 0 || !HostRange(p).Contains(p.Addr()) {
		return netip.Prefix{}, InvalidField("routerip6", s, "must be an IPv6 address with its prefix length such as fd50::2/64, and neither a link-local one nor the network's own, which is its routers'")
	}
	return p, nil
}

func usable6(a netip.Addr) bool {
	return a.Is6() && !a.Is4In6() && a.Zone() == "" && a.IsGlobalUnicast()
}

// ParseNeighbor parses a router's IPv4 address. The error is of kind ErrInvalid.
func ParseNeighbor(s string) (netip.Addr, error) {
	a, err := ParseAddr4("neighbor", s)
	if err != nil {
		return a, err
	}
	return a, checkReserved("neighbor", s, netip.PrefixFrom(a, 32))
}

const routersText = "must be a comma-separated list of routers such as 50.1.1.201@500,fd50::201@500, each once"

// ParseRouters parses a comma-separated list of ADDRESS@AS; empty is none. The
// error is of kind ErrInvalid.
func ParseRouters(s string) (out []BgpRouter, err error) {
	if s == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(s, ",") {
		addr, as, _ := strings.Cut(text, "@")
		var r BgpRouter
		if r.Address, err = netip.ParseAddr(addr); err != nil {
			return nil, InvalidField("neighbors", text, routersText)
		}
		if r.AS, err = ParseAS("neighbors", as); err != nil {
			return nil, InvalidField("neighbors", text, routersText)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b BgpRouter) int { return a.Address.Compare(b.Address) })
	return out, nil
}

// RoutersText is the list that ParseRouters parses.
func RoutersText(list []BgpRouter) string {
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s@%d", r.Address, r.AS))
	}
	return strings.Join(out, ",")
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
	if b.RouterIP6.IsValid() {
		if _, err := ParseRouterIP6(b.RouterIP6.String()); err != nil {
			return err
		}
	}
	if b.Neighbor.IsValid() {
		if _, err := ParseNeighbor(b.Neighbor.String()); err != nil {
			return err
		}
		if b.Neighbor == b.RouterIP.Addr() {
			return InvalidField("neighbor", b.Neighbor, "must not be the host's own address")
		}
	}
	if len(b.Password) > MaxBgpPassword || strings.ContainsFunc(b.Password, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return InvalidField("password", PasswordKept, fmt.Sprintf("must have at most %d printable characters of ASCII, without spaces", MaxBgpPassword))
	}
	if b.MaxPrefixes > MaxBgpPrefixes {
		return InvalidField("maxPrefixes", b.MaxPrefixes, fmt.Sprintf("must be at most %d; 0 = 10000", MaxBgpPrefixes))
	}
	return b.validateMore()
}

func (b Bgp) validateMore() error {
	all := b.Routers()
	if len(all) > MaxBgpRouters {
		return InvalidField("neighbors", len(all), fmt.Sprintf("must be at most %d, neighbor among them", MaxBgpRouters))
	}
	for i, r := range b.More {
		if r.AS == 0 || slices.ContainsFunc(all[:len(all)-len(b.More)+i], func(o BgpRouter) bool { return o.Address == r.Address }) {
			return InvalidField("neighbors", RoutersText(b.More), routersText)
		}
		if r.Address == b.RouterIP.Addr() || r.Address == b.RouterIP6.Addr() {
			return InvalidField("neighbors", r.Address, "must not be the host's own address")
		}
		if r.Address.Is4() {
			if _, err := ParseNeighbor(r.Address.String()); err != nil {
				return err
			}
		} else if !usable6(r.Address) || !b.RouterIP6.IsValid() {
			return InvalidField("neighbors", r.Address, "must be an IPv6 address that is not link-local, and needs routerip6")
		}
	}
	return nil
}
