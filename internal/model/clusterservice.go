package model

import (
	"fmt"
	"net/netip"
	"strings"
)

// ClusterServiceKey names a service of an orchestrator, of Kubernetes, within the
// cluster.
type ClusterServiceKey struct {
	Namespace NamespaceName `json:"namespace"`
	Name      string        `json:"name"`
}

func (k ClusterServiceKey) String() string { return string(k.Namespace) + "/" + k.Name }

// ServiceKey returns the key of the service.
func (k ClusterServiceKey) ServiceKey() ServiceKey { return ServiceKey{DefaultTenant, k.String()} }

// ParseClusterServiceKey parses "namespace/service". The error is of kind ErrInvalid.
func ParseClusterServiceKey(s string) (ClusterServiceKey, error) {
	namespace, name, _ := strings.Cut(s, "/")
	k := ClusterServiceKey{NamespaceName(namespace), name}
	return k, k.validate()
}

func (k ClusterServiceKey) validate() error {
	if _, err := ParseNamespaceName(string(k.Namespace)); err != nil {
		return err
	}
	if len(k.Name) > 63 || !isDNSLabel(k.Name) {
		return InvalidField("service", k.Name, "must be 1-63 small letters, digits and inner hyphens")
	}
	return nil
}

// ClusterNetwork is the network of tenant default on which an orchestrator's pods are
// unless their labels name another.
const ClusterNetwork NetworkName = "default-net"

// ClusterNetworkKey is the key of ClusterNetwork.
var ClusterNetworkKey = NetworkKey{DefaultTenant, ClusterNetwork}

// validateCluster checks a service of Kubernetes. Every client that reaches an address of it may
// use it.
func (s Service) validateCluster() error {
	k, _ := s.Key.Cluster()
	if err := k.validate(); err != nil {
		return err
	}
	if s.Key.Tenant != DefaultTenant {
		return InvalidField("service", s.Key, fmt.Sprintf("must be tenant %s's", DefaultTenant))
	}
	if err := s.Network.validate(); err != nil {
		return err
	}
	if len(s.Addrs) > 2 || len(s.Addrs) == 2 && (!s.Addrs[0].Is4() || !s.Addrs[1].Is6()) {
		return InvalidField("addrs", s.Addrs, "must be at most one address of each family, IPv4 first")
	}
	for _, l := range []struct {
		field  string
		addrs  []netip.Addr
		most   int
		sorted bool
	}{{"addrs", s.Addrs, 2, false}, {"balanced", s.Balanced, MaxBalancedAddrs, true}, {"external", s.External, MaxExternalAddrs, true}} {
		if len(l.addrs) > l.most {
			return InvalidField(l.field, len(l.addrs), fmt.Sprintf("must be at most %d", l.most))
		}
		for i, a := range l.addrs {
			if !IsServiceAddr(a) {
				return InvalidField(l.field, a, WantServiceAddr)
			}
			if l.sorted && i > 0 && !l.addrs[i-1].Less(a) {
				return InvalidField(l.field, a, "must be sorted, each once")
			}
		}
	}
	if len(s.Sources) > MaxBalancedPrefixes {
		return InvalidField("sources", len(s.Sources), fmt.Sprintf("must be at most %d", MaxBalancedPrefixes))
	}
	for i, p := range s.Sources {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || i > 0 && s.Sources[i-1].Compare(p) >= 0 {
			return InvalidField("sources", p, "must be prefixes without bits of a host, sorted, each once")
		}
	}
	switch s.Near {
	case NearAnywhere, NearZone, NearNode:
	default:
		return InvalidField("near", s.Near, "must be zone, node or empty")
	}
	return s.validateNamedPorts()
}

// validateNamedPort checks a port of a service or of its slices; the name may be empty.
func validateNamedPort(proto Protocol, port uint16, name string) error {
	switch {
	case !proto.HasPorts() || port == 0:
		return InvalidField("ports", port, "must be a port from 1 to 65535 of tcp, udp or sctp")
	case name != "" && (len(name) > 63 || !isDNSLabel(name)):
		return InvalidField("ports", name, "must have a name of 1-63 small letters, digits and inner hyphens, or none")
	}
	return nil
}

func (s Service) validateNamedPorts() error {
	if len(s.Ports) > MaxClusterPorts {
		return InvalidField("ports", len(s.Ports), fmt.Sprintf("must be at most %d", MaxClusterPorts))
	}
	for i, p := range s.Ports {
		if err := validateNamedPort(p.Protocol, p.Port, p.Name); err != nil {
			return err
		}
		if i > 0 && CompareServicePorts(s.Ports[i-1], p) >= 0 {
			return InvalidField("ports", p.Port, "must be sorted by protocol and port, each once")
		}
	}
	return nil
}

// WantServiceAddr says what IsServiceAddr asks for.
const WantServiceAddr = "must be the address of a single machine: not multicast, loopback, link-local or unspecified"

// IsServiceAddr reports whether a service may have an address.
func IsServiceAddr(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
