package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ClusterServiceKey names a service of an orchestrator, of Kubernetes, within the
// cluster.
type ClusterServiceKey struct {
	Namespace NamespaceName `json:"namespace"`
	Name      string        `json:"name"`
}

func (k ClusterServiceKey) String() string { return string(k.Namespace) + "/" + k.Name }

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
// unless somebody says otherwise, and in whose space of addresses cluster services are.
const ClusterNetwork NetworkName = "default-net"

// Limits of one cluster service.
const (
	MaxClusterPorts     = 256
	MaxBalancedAddrs    = 16 // of a load balancer
	MaxExternalAddrs    = 64
	MaxBalancedPrefixes = 256 // of clients that a load balancer takes
)

// ClusterService is a service whose addresses an orchestrator assigned, and whose backends
// are its slices' (ServiceSlice). It belongs to no tenant: every client that reaches an
// address of it may use it.
type ClusterService struct {
	Key ClusterServiceKey `json:"key"`
	// Addrs are those by which the cluster knows it: at most one of each family, IPv4 first.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// Balanced are those of a load balancer, External others that lead to any node;
	// both sorted, each once.
	Balanced []netip.Addr `json:"balanced,omitempty"`
	External []netip.Addr `json:"external,omitempty"`
	// Sources are the clients that Balanced takes, sorted; nil = all. OnlySources: only
	// these, also when there are none.
	Sources     []netip.Prefix `json:"sources,omitempty"`
	OnlySources bool           `json:"onlySources,omitempty"`
	Ports       []ClusterPort  `json:"ports,omitempty"` // sorted by protocol and port
	// Affinity is for how many seconds a client stays with its backend after its last new
	// connection; 0 = each connection is chosen for by itself.
	Affinity int32 `json:"affinity,omitempty"`
	// InsideLocal: connections to Addrs go to backends on the client's node alone.
	// OutsideLocal: those to node ports, Balanced and External from outside go to backends
	// on the node where they arrive alone.
	InsideLocal  bool `json:"insideLocal,omitempty"`
	OutsideLocal bool `json:"outsideLocal,omitempty"`
	Near         Near `json:"near,omitempty"`
	// HealthPort is where each node tells by HTTP whether it has a backend, for
	// OutsideLocal; 0 = nowhere.
	HealthPort uint16 `json:"healthPort,omitempty"`
}

// ClusterPort is a port of a cluster service. Slices tell by its name which port their
// backends listen at.
type ClusterPort struct {
	Name     string   `json:"name,omitempty"` // empty = the service's only port
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
	Node     uint16   `json:"node,omitempty"` // the port at each node's addresses; 0 = none
}

// WhoseFront says in words at which of some ports the service is, at any of its
// addresses; empty = at none.
func (s ClusterService) WhoseFront(ports []ClusterPort) string {
	for _, p := range s.Ports {
		if slices.ContainsFunc(ports, func(o ClusterPort) bool { return CompareClusterPorts(o, p) == 0 }) {
			return fmt.Sprintf("leads to service %s at port %d of %s", s.Key, p.Port, p.Protocol)
		}
	}
	return ""
}

// CompareClusterPorts orders the ports of a cluster service.
func CompareClusterPorts(a, b ClusterPort) int {
	if a.Protocol != b.Protocol {
		return int(a.Protocol) - int(b.Protocol)
	}
	return int(a.Port) - int(b.Port)
}

// Near says which backends are taken before others while there is one, by the hints of
// the slices.
type Near string

// What is near.
const (
	NearAnywhere Near = ""
	NearZone     Near = "zone" // of the client's node
	NearNode     Near = "node" // the client's node, else its zone
)

// AffinityTime returns how long a client stays with its backend; 0 = it does not.
func (s ClusterService) AffinityTime() time.Duration { return time.Duration(s.Affinity) * time.Second }

// Equal compares two services by what they say.
func (s ClusterService) Equal(o ClusterService) bool {
	return s.Key == o.Key && slices.Equal(s.Addrs, o.Addrs) && slices.Equal(s.Balanced, o.Balanced) && slices.Equal(s.External, o.External) &&
		slices.Equal(s.Sources, o.Sources) && s.OnlySources == o.OnlySources && slices.Equal(s.Ports, o.Ports) && s.Affinity == o.Affinity &&
		s.InsideLocal == o.InsideLocal && s.OutsideLocal == o.OutsideLocal && s.Near == o.Near && s.HealthPort == o.HealthPort
}

// Fronts is how many pairs of address and port the service has, node ports not counted.
func (s ClusterService) Fronts() int {
	return len(s.Ports) * (len(s.Addrs) + len(s.Balanced) + len(s.External))
}

// Validate checks the service. The error is of kind ErrInvalid.
func (s ClusterService) Validate() error {
	if err := s.Key.validate(); err != nil {
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
	if s.Affinity < 0 || Affinity(s.Affinity) > MaxAffinity {
		return InvalidField("affinity", s.Affinity, "must be a number of seconds up to 24 hours")
	}
	return s.validatePorts()
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

func (s ClusterService) validatePorts() error {
	if len(s.Ports) > MaxClusterPorts {
		return InvalidField("ports", len(s.Ports), fmt.Sprintf("must be at most %d", MaxClusterPorts))
	}
	for i, p := range s.Ports {
		if err := validateNamedPort(p.Protocol, p.Port, p.Name); err != nil {
			return err
		}
		if i > 0 && CompareClusterPorts(s.Ports[i-1], p) >= 0 {
			return InvalidField("ports", p.Port, "must be sorted by protocol and port, each once")
		}
	}
	return nil
}

// WantServiceAddr says what IsServiceAddr asks for.
const WantServiceAddr = "must be the address of a single machine: not multicast, loopback, link-local or unspecified"

// IsServiceAddr tells whether a service may have an address.
func IsServiceAddr(a netip.Addr) bool {
	return a.IsValid() && a.Zone() == "" && !a.Is4In6() && !a.IsMulticast() && !a.IsLoopback() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
