package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// MaxServiceName is the length limit of services' names, in characters.
const MaxServiceName = 256

// Limits of one service.
const (
	MaxServicePorts     = 64 // of a tenant's
	MaxClusterPorts     = 256
	MaxServiceSelectors = 32
	MaxBalancedAddrs    = 16 // of a load balancer
	MaxExternalAddrs    = 64
	MaxBalancedPrefixes = 256 // of clients that a load balancer takes
	// MaxProviders is among how many backends connections are spread.
	MaxProviders = 4096
)

// Limits of all services together: what a host holds that has containers of all
// tenants. MaxServiceFrontends counts addresses and ports: a service of two families with
// three ports has six.
const (
	MaxServices         = 16384
	MaxServiceFrontends = 65536
)

// ServiceKey names a service within the cluster. A service of Kubernetes is tenant
// default's, and its name is ClusterServiceKey's text, which no other service's can be.
type ServiceKey struct {
	Tenant TenantName `json:"tenant"`
	Name   string     `json:"name"`
}

func (k ServiceKey) String() string { return string(k.Tenant) + ":" + k.Name }

// Cluster returns which service of Kubernetes the key names; false = a tenant's.
func (k ServiceKey) Cluster() (ClusterServiceKey, bool) {
	namespace, name, is := strings.Cut(k.Name, "/")
	if !is {
		return ClusterServiceKey{}, false
	}
	return ClusterServiceKey{NamespaceName(namespace), name}, true
}

// Service is addresses and ports at which several backends answer: the endpoints of its
// network that have all labels of the selectors, and the backends that slices (ServiceSlice)
// name. It is the stored and compiled form of both serviceLBs of users (servicelb.go) and
// services of Kubernetes (docs/adr/0036-one-service-model.md).
type Service struct {
	Key   ServiceKey  `json:"key"`
	Owner PolicyOwner `json:"owner,omitempty"` // OwnerKubernetes, or empty = its user
	// Network is in whose space of addresses the service is asked, and whose endpoints
	// Selectors select.
	Network NetworkKey `json:"networkKey"`
	// Addrs are those by which the cluster knows it: at most one of each family, IPv4 first.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	// ReqAddr, of either family, and ReqAddr6 beside it are what a user asked for; zero = any.
	ReqAddr  netip.Addr `json:"reqAddr,omitzero"`
	ReqAddr6 netip.Addr `json:"reqAddr6,omitzero"`
	// Balanced are those of a load balancer, External others that lead to any node;
	// both sorted, each once.
	Balanced []netip.Addr `json:"balanced,omitempty"`
	External []netip.Addr `json:"external,omitempty"`
	// Sources are the clients that Balanced takes, sorted; nil = all. OnlySources: only
	// these, also when there are none.
	Sources     []netip.Prefix    `json:"sources,omitempty"`
	OnlySources bool              `json:"onlySources,omitempty"`
	Ports       []ServicePort     `json:"ports,omitempty"`     // each protocol and port once
	Selectors   []ServiceSelector `json:"selectors,omitempty"` // nil = no endpoint is selected
	Affinity    Affinity          `json:"affinity,omitempty"`
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

// ServicePort leads a port of the service to a port of its backends.
type ServicePort struct {
	Name     string   `json:"name,omitempty"` // empty = none
	Protocol Protocol `json:"protocol"`       // tcp, udp or sctp
	Port     uint16   `json:"port"`
	Target   uint16   `json:"target,omitempty"` // the backends'; 0 = slices tell it by Name
	Node     uint16   `json:"node,omitempty"`   // the port at each node's addresses; 0 = none
	Text     string   `json:"text,omitempty"`   // as the user of a serviceLB wrote it
}

// CompareServicePorts orders the ports of a service.
func CompareServicePorts(a, b ServicePort) int {
	if a.Protocol != b.Protocol {
		return int(a.Protocol) - int(b.Protocol)
	}
	return int(a.Port) - int(b.Port)
}

// ServiceSelector is a label that a backend must have.
type ServiceSelector struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (s ServiceSelector) String() string { return s.Key + "=" + s.Value }

// Affinity is for how many seconds a client stays with the backend that it got, after its
// last new connection; 0 = DefaultAffinity, negative = each connection is chosen for by
// itself.
type Affinity int64

// The affinities; 1.x kept to a provider by client address.
const (
	NoAffinity      Affinity = -1
	DefaultAffinity Affinity = 3 * 60 * 60
	MaxAffinity     Affinity = 24 * 60 * 60
)

// Near says which backends are taken before others while there is one, by the hints of
// the slices.
type Near string

// What is near.
const (
	NearAnywhere Near = ""
	NearZone     Near = "zone" // of the client's node
	NearNode     Near = "node" // the client's node, else its zone
)

// FrontendCount is how many pairs of address and port the service has, node ports not counted.
func (s Service) FrontendCount() int {
	return len(s.Ports) * (len(s.Addrs) + len(s.Balanced) + len(s.External))
}

// CheckCapacity returns an error of kind ErrExhausted if hosts cannot hold the service beside all
// others. services and fronts are what there is altogether, old included, which the service
// replaces if there is one. A service that takes no more than old fits.
func (s Service) CheckCapacity(old Service, there bool, services, fronts int) error {
	grows := s.FrontendCount() - old.FrontendCount()
	switch {
	case !there && services >= MaxServices:
		return Errorf(ErrExhausted, "there are %d services, a host's limit", services)
	case grows > 0 && fronts+grows > MaxServiceFrontends:
		return Errorf(ErrExhausted, "ports: with %d at its addresses all services would have %d, more than a host's limit of %d",
			s.FrontendCount(), fronts+grows, MaxServiceFrontends)
	}
	return nil
}

// AffinityTime returns how long a client stays with its backend; 0 = it does not.
func (s Service) AffinityTime() time.Duration {
	switch {
	case s.Affinity < 0:
		return 0
	case s.Affinity == 0:
		return time.Duration(DefaultAffinity) * time.Second
	}
	return time.Duration(s.Affinity) * time.Second
}

// AddrsByFamily returns Addrs; zero where it has none of a family.
func (s Service) AddrsByFamily() (v4, v6 netip.Addr) {
	for _, a := range s.Addrs {
		if a.Is4() {
			v4 = a
		} else {
			v6 = a
		}
	}
	return v4, v6
}

// SetAddrs sets Addrs by family; zero where it has none.
func (s *Service) SetAddrs(v4, v6 netip.Addr) {
	s.Addrs = slices.DeleteFunc([]netip.Addr{v4, v6}, func(a netip.Addr) bool { return !a.IsValid() })
}

// AllAddrs returns all addresses of the service but nodes'.
func (s Service) AllAddrs() []netip.Addr { return slices.Concat(s.Addrs, s.Balanced, s.External) }

// Selects reports whether the selectors select an endpoint of the service's network that
// has the labels.
func (s Service) Selects(labels map[string]string) bool {
	for _, sel := range s.Selectors {
		if v, ok := labels[sel.Key]; !ok || v != sel.Value {
			return false
		}
	}
	return len(s.Selectors) > 0
}

// DescribeFrontend says in words at which of some ports the service is, at any of its
// addresses; empty = at none.
func (s Service) DescribeFrontend(ports []ServicePort) string {
	for _, p := range s.Ports {
		if slices.ContainsFunc(ports, func(o ServicePort) bool { return CompareServicePorts(o, p) == 0 }) {
			return fmt.Sprintf("leads to service %s at port %d of %s", s.Key.Name, p.Port, p.Protocol)
		}
	}
	return ""
}

// Equal compares two services by what they say.
func (s Service) Equal(o Service) bool {
	return s.Key == o.Key && s.Owner == o.Owner && s.Network == o.Network && slices.Equal(s.Addrs, o.Addrs) && s.ReqAddr == o.ReqAddr && s.ReqAddr6 == o.ReqAddr6 &&
		slices.Equal(s.Balanced, o.Balanced) && slices.Equal(s.External, o.External) && slices.Equal(s.Sources, o.Sources) && s.OnlySources == o.OnlySources &&
		slices.Equal(s.Ports, o.Ports) && slices.Equal(s.Selectors, o.Selectors) && s.Affinity == o.Affinity &&
		s.InsideLocal == o.InsideLocal && s.OutsideLocal == o.OutsideLocal && s.Near == o.Near && s.HealthPort == o.HealthPort
}

// Validate checks the service, but not that its addresses fit its network. The error is of
// kind ErrInvalid.
func (s Service) Validate() error {
	if s.Affinity < NoAffinity || s.Affinity > MaxAffinity {
		return InvalidField("affinity", int64(s.Affinity), "must be -1 or a number of seconds up to 24 hours")
	}
	if s.Owner == OwnerKubernetes {
		return s.validateCluster()
	}
	return s.validateLB()
}
