package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// serviceLBs of 1.x: services of a network of a tenant, whose backends are selected by
// labels.

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

// ParseServiceKey parses "tenant:service". The error is of kind ErrInvalid.
func ParseServiceKey(s string) (ServiceKey, error) {
	t, n, err := parseKey("serviceName", s, MaxServiceName)
	return ServiceKey{t, n}, err
}

// RequestedAddrs returns the addresses that are asked for, by family; zero = any.
func (s Service) RequestedAddrs() (v4, v6 netip.Addr) {
	if s.ReqAddr.Is6() {
		return netip.Addr{}, s.ReqAddr
	}
	return s.ReqAddr, s.ReqAddr6
}

// ParseServiceSelector parses "key=value"; the value may be empty. The error is
// of kind ErrInvalid.
func ParseServiceSelector(s string) (ServiceSelector, error) {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" || len(k) > MaxLabelKey || len(v) > MaxLabelValue || checkText("selectors", s, len(s)) != nil {
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
	target, ok2 := PortNumber(p[1])
	proto := map[string]Protocol{"tcp": ProtoTCP, "udp": ProtoUDP, "sctp": ProtoSCTP, "132": ProtoSCTP}[strings.ToLower(p[2])]
	if !ok1 || !ok2 || proto == 0 {
		return ServicePort{}, bad
	}
	out := ServicePort{Port: port, Target: target, Protocol: proto, Text: s}
	if len(p) == 4 {
		if out.Name = p[3]; !validPortName(out.Name) {
			return ServicePort{}, InvalidField("ports", s, "must have a name of 1 to 15 lower-case letters, digits and single hyphens between them, with at least one letter")
		}
	}
	return out, nil
}

// validPortName reports whether a text is a service name of RFC 6335 section 5.1, in
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

// validateLB checks what the user of a serviceLB gives (not Addrs, which are allocated).
func (s Service) validateLB() error {
	if _, err := ParseTenantName(string(s.Key.Tenant)); err != nil {
		return err
	}
	if err := parseName("serviceName", s.Key.Name, MaxServiceName); err != nil {
		return err
	}
	if _, err := ParseNetworkName(string(s.Network.Name)); err != nil {
		return err
	}
	if s.Network.Tenant != s.Key.Tenant {
		return InvalidField("networkName", s.Network, "must be a network of the service's tenant")
	}
	if err := s.validateRequestedAddrs(); err != nil {
		return err
	}
	if err := s.validateSelectors(); err != nil {
		return err
	}
	return s.validatePortTexts()
}

func (s Service) validateRequestedAddrs() error {
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
	return nil
}

func (s Service) validateSelectors() error {
	switch n := len(s.Selectors); {
	case n == 0:
		return InvalidField("selectors", "", "must not be empty: a service without selectors has no providers")
	case n > MaxServiceSelectors:
		return InvalidField("selectors", n, fmt.Sprintf("must be at most %d", MaxServiceSelectors))
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

func (s Service) validatePortTexts() error {
	switch n := len(s.Ports); {
	case n == 0:
		return InvalidField("ports", "", "must not be empty: give service port:provider port:protocol, such as 80:8080:TCP")
	case n > MaxServicePorts:
		return InvalidField("ports", n, fmt.Sprintf("must be at most %d", MaxServicePorts))
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
