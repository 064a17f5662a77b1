package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

var _ = register(Kind{
	Collection: "serviceLBs", Name: "serviceLB", Order: 80,
	NoEffects: []NoEffect{
		{
			Field: "ports", Value: "sctp", Hosts: "those on Open vSwitch", ByDriver: true,
			Text: "hosts on Open vSwitch serve a service's TCP and UDP ports, and no SCTP: connections to such a port fail there",
			set: in(func(s Service) bool {
				return slices.ContainsFunc(s.Ports, func(p ServicePort) bool { return p.Protocol == ProtoSCTP })
			}),
		},
	},
})

// MaxServiceName is the length limit of services' names, in characters.
const MaxServiceName = 256

// Limits of one service.
const (
	MaxServicePorts     = 64
	MaxServiceSelectors = 32
	// MaxProviders is among how many providers connections are spread.
	MaxProviders = 4096
)

// Limits of all services together: what a host holds that has containers of all
// tenants. MaxFronts counts addresses and ports: a service of two families with
// three ports has six.
const (
	MaxServices = 16384
	MaxFronts   = 65536
)

// Fronts is how many pairs of address and port the service has.
func (s Service) Fronts() int {
	n := 0
	v4, v6 := s.Addrs()
	for _, a := range []netip.Addr{v4, v6} {
		if a.IsValid() {
			n += len(s.Ports)
		}
	}
	return n
}

// ServiceKey names a load-balanced service within the cluster.
type ServiceKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k ServiceKey) String() string { return string(k.Tenant) + ":" + k.Name }

// ParseServiceKey parses "tenant:service". The error is of kind ErrInvalid.
func ParseServiceKey(s string) (ServiceKey, error) {
	t, n, err := parseKey("serviceName", s, MaxServiceName)
	return ServiceKey{t, n}, err
}

// Service is a virtual address of a network whose connections are spread over
// its providers: the network's endpoints that have all labels of the selectors.
type Service struct {
	Key       ServiceKey        `json:"key"`
	Network   NetworkName       `json:"network"`
	ReqAddr   netip.Addr        `json:"reqAddr,omitzero"`  // as asked for, of either family; zero = any
	ReqAddr6  netip.Addr        `json:"reqAddr6,omitzero"` // IPv6, as asked for beside it; zero = any
	VIP       netip.Addr        `json:"vip"`               // allocated; IPv6 on a network without IPv4
	VIP6      netip.Addr        `json:"vip6,omitzero"`     // allocated beside an IPv4 one, where the network has IPv6
	Selectors []ServiceSelector `json:"selectors"`
	Ports     []ServicePort     `json:"ports"`
	Affinity  Affinity          `json:"affinity,omitempty"`
}

// Affinity is for how many seconds a client stays with the provider that it got,
// after its last new connection; 0 = DefaultAffinity, negative = each connection is
// chosen for by itself.
type Affinity int64

// The affinities; 1.x kept to a provider by client address.
const (
	NoAffinity      Affinity = -1
	DefaultAffinity Affinity = 3 * 60 * 60
	MaxAffinity     Affinity = 24 * 60 * 60
)

// AffinityTime returns how long a client stays with its provider; 0 = it does not.
func (s Service) AffinityTime() time.Duration {
	switch {
	case s.Affinity < 0:
		return 0
	case s.Affinity == 0:
		return time.Duration(DefaultAffinity) * time.Second
	}
	return time.Duration(s.Affinity) * time.Second
}

// Addrs returns the service's addresses by family; zero where it has none.
func (s Service) Addrs() (v4, v6 netip.Addr) {
	if s.VIP.Is4() {
		return s.VIP, s.VIP6
	}
	return netip.Addr{}, s.VIP
}

// SetAddrs sets the service's addresses by family; zero where it has none.
func (s *Service) SetAddrs(v4, v6 netip.Addr) {
	if s.VIP, s.VIP6 = v4, v6; !v4.IsValid() {
		s.VIP, s.VIP6 = v6, netip.Addr{}
	}
}

// Wished returns the addresses that are asked for, by family; zero = any.
func (s Service) Wished() (v4, v6 netip.Addr) {
	if s.ReqAddr.Is6() {
		return netip.Addr{}, s.ReqAddr
	}
	return s.ReqAddr, s.ReqAddr6
}

// ServiceSelector is a label that a provider must have.
type ServiceSelector struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (s ServiceSelector) String() string { return s.Key + "=" + s.Value }

// ServicePort leads a port of the service to a port of its providers.
type ServicePort struct {
	Port     uint16   `json:"port"`
	Provider uint16   `json:"provider"`
	Protocol Protocol `json:"protocol"`       // tcp, udp or sctp
	Name     string   `json:"name,omitempty"` // by which SRV records tell of it, beside its number; empty = none
	Text     string   `json:"text"`           // as the user wrote it
}

// NetworkKey returns the key of the service's network.
func (s Service) NetworkKey() NetworkKey { return NetworkKey{s.Key.Tenant, s.Network} }

// Selects tells whether an endpoint with the labels provides the service, if it
// is on its network.
func (s Service) Selects(labels map[string]string) bool {
	for _, sel := range s.Selectors {
		if v, ok := labels[sel.Key]; !ok || v != sel.Value {
			return false
		}
	}
	return len(s.Selectors) > 0
}

// ParseServiceSelector parses "key=value"; the value may be empty. The error is
// of kind ErrInvalid.
func ParseServiceSelector(s string) (ServiceSelector, error) {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" || len(k) > MaxLabelKey || len(v) > MaxLabelValue || validText("selectors", s, len(s)) != nil {
		return ServiceSelector{}, InvalidField("selectors", s, fmt.Sprintf("must be key=value, a key of 1 to %d printable characters and a value of at most %d", MaxLabelKey, MaxLabelValue))
	}
	return ServiceSelector{k, v}, nil
}

// ParseServicePort parses "service port:provider port:protocol" with ports of
// 1-65535 and the protocol tcp, udp or sctp (132) in upper or lower case; ":name" may
// follow, 1 to 15 characters of RFC 6335. The error is of kind ErrInvalid.
func ParseServicePort(s string) (ServicePort, error) {
	p := strings.Split(s, ":")
	bad := InvalidField("ports", s, "must be service port:provider port:protocol such as 80:8080:TCP, with ports between 1 and 65535 and the protocol tcp, udp or sctp (132); a name may follow (80:8080:TCP:http)")
	if len(p) != 3 && len(p) != 4 {
		return ServicePort{}, bad
	}
	port, ok1 := PortNumber(p[0])
	provider, ok2 := PortNumber(p[1])
	proto := map[string]Protocol{"tcp": ProtoTCP, "udp": ProtoUDP, "sctp": ProtoSCTP, "132": ProtoSCTP}[strings.ToLower(p[2])]
	if !ok1 || !ok2 || proto == 0 {
		return ServicePort{}, bad
	}
	out := ServicePort{Port: port, Provider: provider, Protocol: proto, Text: s}
	if len(p) == 4 {
		if out.Name = p[3]; !validPortName(out.Name) {
			return ServicePort{}, InvalidField("ports", s, "must have a name of 1 to 15 lower-case letters, digits and single hyphens between them, with at least one letter")
		}
	}
	return out, nil
}

// validPortName tells whether a text is a service name of RFC 6335 section 5.1, in
// lower case.
func validPortName(s string) bool {
	return len(s) >= 1 && len(s) <= 15 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" &&
		strings.ContainsAny(s, "abcdefghijklmnopqrstuvwxyz") && s[0] != '-' && s[len(s)-1] != '-' && !strings.Contains(s, "--")
}

// PortNumber parses a port of 1-65535 in decimal digits without leading zeros;
// false for anything else.
func PortNumber(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// ParseServiceAddr parses the address that a service asks for in ipAddress, of
// either family; empty = any. The error is of kind ErrInvalid.
func ParseServiceAddr(s string) (netip.Addr, error) {
	if s == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Is4In6() || a.Zone() != "" {
		return netip.Addr{}, InvalidField("ipAddress", s, "must be an address of the network such as 10.1.1.2, or empty to choose one")
	}
	return a, nil
}

// ParseAffinity parses "off", or a time of 1 s to MaxAffinity such as "10m", in whole
// seconds; empty = DefaultAffinity. The error is of kind ErrInvalid.
func ParseAffinity(s string) (Affinity, error) {
	switch s {
	case "":
		return 0, nil
	case "off":
		return NoAffinity, nil
	}
	d, err := time.ParseDuration(s)
	a := Affinity(d / time.Second)
	if err != nil || d%time.Second != 0 || a < 1 || a > MaxAffinity {
		return 0, InvalidField("affinity", s, "must be off, or a time in whole seconds from 1s to 24h such as 10m; empty = 3h")
	}
	return a, nil
}

// String is what ParseAffinity parses.
func (a Affinity) String() string {
	switch {
	case a < 0:
		return "off"
	case a == 0:
		return ""
	}
	s := (time.Duration(a) * time.Second).String()
	if t, ok := strings.CutSuffix(s, "m0s"); ok {
		s = t + "m"
	}
	if t, ok := strings.CutSuffix(s, "h0m"); ok {
		s = t + "h"
	}
	return s
}

// Validate checks the fields that a user gives (not VIP, which is allocated, and not
// that the address fits the network). The error is of kind ErrInvalid.
func (s Service) Validate() error {
	if _, err := ParseTenantName(string(s.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("serviceName", s.Key.Name, MaxServiceName); err != nil {
		return err
	}
	if _, err := ParseNetworkName(string(s.Network)); err != nil {
		return err
	}
	if err := s.validateWishes(); err != nil {
		return err
	}
	if err := s.validateSelectors(); err != nil {
		return err
	}
	return s.validatePorts()
}

func (s Service) validateWishes() error {
	if s.ReqAddr.IsValid() {
		if _, err := ParseServiceAddr(s.ReqAddr.String()); err != nil {
			return err
		}
	}
	if s.ReqAddr6.IsValid() {
		if _, err := ParseAddr6("ipv6Address", s.ReqAddr6.String()); err != nil {
			return err
		}
		if s.ReqAddr.Is6() && s.ReqAddr != s.ReqAddr6 {
			return InvalidField("ipv6Address", s.ReqAddr6, fmt.Sprintf("must be %s, which ipAddress asks for, or empty", s.ReqAddr))
		}
	}
	if p, err := ParseAffinity(s.Affinity.String()); err != nil || p != s.Affinity {
		return InvalidField("affinity", int64(s.Affinity), "must be -1 or a number of seconds up to 24 hours")
	}
	return nil
}

func (s Service) validateSelectors() error {
	if n := len(s.Selectors); n == 0 || n > MaxServiceSelectors {
		return InvalidField("selectors", n, fmt.Sprintf("must be between 1 and %d; what has no selector has no providers", MaxServiceSelectors))
	}
	for i, sel := range s.Selectors {
		if p, err := ParseServiceSelector(sel.String()); err != nil || p != sel {
			return InvalidField("selectors", sel, "must be key=value")
		}
		if slices.ContainsFunc(s.Selectors[:i], func(o ServiceSelector) bool { return o.Key == sel.Key }) {
			return InvalidField("selectors", sel, "must name a key once: no endpoint has two values of one label")
		}
	}
	return nil
}

func (s Service) validatePorts() error {
	if n := len(s.Ports); n == 0 || n > MaxServicePorts {
		return InvalidField("ports", n, fmt.Sprintf("must be between 1 and %d, each service port:provider port:protocol", MaxServicePorts))
	}
	for i, port := range s.Ports {
		p, err := ParseServicePort(port.Text)
		if err != nil {
			return err
		}
		if p != port {
			return InvalidField("ports", port.Text, "must mean the parsed ports")
		}
		if slices.ContainsFunc(s.Ports[:i], func(o ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol }) {
			return InvalidField("ports", port.Text, "must have each port of the service and protocol once")
		}
		if slices.ContainsFunc(s.Ports[:i], func(o ServicePort) bool { return p.Name != "" && o.Name == p.Name && o.Protocol == p.Protocol }) {
			return InvalidField("ports", port.Text, "must have each name once for a protocol")
		}
	}
	return nil
}
