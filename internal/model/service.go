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
			Field: "ports", Hosts: "those with containers of the tenant",
			Text: "services are not served yet: names resolve to their addresses, but no host spreads connections over the providers, so that connections fail",
			set:  in(func(s Service) bool { return len(s.Ports) > 0 }),
		},
	},
})

// MaxServiceName is the length limit of services' names, in characters.
const MaxServiceName = 256

// Limits of one service.
const (
	MaxServicePorts     = 64
	MaxServiceSelectors = 32
)

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
	ReqAddr   netip.Addr        `json:"reqAddr,omitzero"` // as asked for; zero = any
	VIP       netip.Addr        `json:"vip"`              // allocated; IPv6 on a network without IPv4
	VIP6      netip.Addr        `json:"vip6,omitzero"`    // allocated beside an IPv4 one, where the network has IPv6
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
	Protocol Protocol `json:"protocol"` // tcp or udp
	Text     string   `json:"text"`     // as the user wrote it
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
// 1-65535 and the protocol tcp or udp in upper or lower case. The error is of
// kind ErrInvalid.
func ParseServicePort(s string) (ServicePort, error) {
	p := strings.Split(s, ":")
	bad := InvalidField("ports", s, "must be service port:provider port:protocol such as 80:8080:TCP, with ports between 1 and 65535 and the protocol tcp or udp")
	if len(p) != 3 {
		return ServicePort{}, bad
	}
	port, ok1 := PortNumber(p[0])
	provider, ok2 := PortNumber(p[1])
	proto := map[string]Protocol{"tcp": ProtoTCP, "udp": ProtoUDP}[strings.ToLower(p[2])]
	if !ok1 || !ok2 || proto == 0 {
		return ServicePort{}, bad
	}
	return ServicePort{port, provider, proto, s}, nil
}

// PortNumber parses a port of 1-65535 in decimal digits without leading zeros;
// false for anything else.
func PortNumber(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// ParseServiceAddr parses the address that a service asks for; empty = any. The
// error is of kind ErrInvalid.
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
	if s.ReqAddr.IsValid() {
		if _, err := ParseServiceAddr(s.ReqAddr.String()); err != nil {
			return err
		}
	}
	if err := s.validateSelectors(); err != nil {
		return err
	}
	return s.validatePorts()
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
	}
	return nil
}
