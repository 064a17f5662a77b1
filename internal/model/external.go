package model

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MaxHostName is the length limit of hosts' names, in characters.
const MaxHostName = 256

// Bgp makes a host speak BGP with a router of the network that it stands in.
type Bgp struct {
	Host       HostName     `json:"host"`
	RouterIP   netip.Prefix `json:"routerIP"`          // the host's address there, with the prefix length; not masked
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

// ContractsType says what groups do with external contracts.
type ContractsType string

// The types of external contracts.
const (
	ContractsProvided ContractsType = "provided"
	ContractsConsumed ContractsType = "consumed"
)

// ParseContractsType parses a contracts group's type. The error is of kind ErrInvalid.
func ParseContractsType(s string) (ContractsType, error) {
	return parseEnum("contractsType", s, ContractsProvided, ContractsConsumed)
}

// ExtContractsKey names a group of external contracts within the cluster.
type ExtContractsKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k ExtContractsKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseExtContractsKey parses "tenant:contracts group". The error is of kind
// ErrInvalid.
func ParseExtContractsKey(s string) (ExtContractsKey, error) {
	t, n, err := parseKey("contractsGroupName", s, MaxName)
	return ExtContractsKey{t, n}, err
}

// ExtContracts is a group of contracts that exist outside, in an ACI fabric.
type ExtContracts struct {
	Key       ExtContractsKey `json:"key"`
	Type      ContractsType   `json:"type"`
	Contracts []string        `json:"contracts,omitempty"` // such as "uni/tn-common/brc-web"
}

// Limits of groups of external contracts.
const (
	MaxContracts    = 256
	MaxContractName = 512 // characters
)

// Validate checks all fields. The error is of kind ErrInvalid.
func (e ExtContracts) Validate() error {
	if _, err := ParseTenantName(string(e.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("contractsGroupName", e.Key.Name, MaxName); err != nil {
		return err
	}
	if _, err := ParseContractsType(string(e.Type)); err != nil {
		return err
	}
	if len(e.Contracts) > MaxContracts {
		return InvalidField("contracts", len(e.Contracts), fmt.Sprintf("must be at most %d", MaxContracts))
	}
	for i, c := range e.Contracts {
		if c == "" || strings.ContainsAny(c, " ,") {
			return InvalidField("contracts", c, "must not be empty, nor hold spaces or commas")
		}
		if err := validText("contracts", c, MaxContractName); err != nil {
			return err
		}
		if slices.Contains(e.Contracts[:i], c) {
			return InvalidField("contracts", c, "must be named once")
		}
	}
	return nil
}

// AciGw holds the settings of an ACI fabric; there is one at most.
type AciGw struct {
	PhysicalDomain      string   `json:"physicalDomain,omitempty"`
	PathBindings        []string `json:"pathBindings,omitempty"` // "topology/pod-1/paths-101/pathep-[eth1/14]"
	NodeBindings        []string `json:"nodeBindings,omitempty"` // "topology/pod-1/node-101"
	EnforcePolicies     bool     `json:"enforcePolicies"`
	IncludeCommonTenant bool     `json:"includeCommonTenant"`
}

// MaxPhysicalDomain is the length limit of an ACI physical domain's name.
const MaxPhysicalDomain = 128

// MaxBindings is how many paths, and how many nodes, an ACI gateway may name.
const MaxBindings = 1024

var (
	pathRE   = pattern(`^topology/pod-[0-9]{1,4}/paths-[0-9]{1,4}/pathep-\[eth[0-9]{1,2}/[0-9]{1,2}\]$`)
	domainRE = pattern(`^[a-zA-Z0-9_.:-]*$`)
	nodeRE   = pattern(`^topology/pod-[0-9]{1,4}/node-[0-9]{1,4}$`)
)

// pattern compiles when it is first asked for: contivk8s, which starts for every
// container and needs none of them, would spend a tenth of its start on them.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// ParsePathBindings parses a comma-separated list; empty is none. The error is
// of kind ErrInvalid.
func ParsePathBindings(s string) ([]string, error) {
	return parseBindings("pathBindings", s, pathRE(), "must be a comma-separated list of paths such as topology/pod-1/paths-101/pathep-[eth1/14], each once")
}

// ParseNodeBindings parses a comma-separated list; empty is none. The error is
// of kind ErrInvalid.
func ParseNodeBindings(s string) ([]string, error) {
	return parseBindings("nodeBindings", s, nodeRE(), "must be a comma-separated list of nodes such as topology/pod-1/node-101, each once")
}

func parseBindings(field, s string, re *regexp.Regexp, want string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	list := strings.Split(s, ",")
	if len(list) > MaxBindings {
		return nil, InvalidField(field, len(list), fmt.Sprintf("must be at most %d", MaxBindings))
	}
	seen := make(map[string]bool)
	for _, b := range list {
		if !re.MatchString(b) || seen[b] {
			return nil, InvalidField(field, s, want)
		}
		seen[b] = true
	}
	return list, nil
}

// ParseYesNo parses a switch; empty is what it is by default. The error is of
// kind ErrInvalid.
func ParseYesNo(field, s string, byDefault bool) (bool, error) {
	switch s {
	case "":
		return byDefault, nil
	case "yes":
		return true, nil
	case "no":
		return false, nil
	}
	return false, InvalidField(field, s, "must be yes or no")
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (g AciGw) Validate() error {
	if len(g.PhysicalDomain) > MaxPhysicalDomain || !domainRE().MatchString(g.PhysicalDomain) {
		return InvalidField("physicalDomain", g.PhysicalDomain, "must be at most 128 letters, digits or any of _.:-")
	}
	if _, err := ParsePathBindings(strings.Join(g.PathBindings, ",")); err != nil {
		return err
	}
	_, err := ParseNodeBindings(strings.Join(g.NodeBindings, ","))
	return err
}
