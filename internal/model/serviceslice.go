package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// ServiceSliceKey names some of a cluster service's backends.
type ServiceSliceKey struct {
	Namespace NamespaceName `json:"namespace"`
	Name      string        `json:"name"`
}

func (k ServiceSliceKey) String() string { return string(k.Namespace) + "/" + k.Name }

// Limits of one slice.
const (
	MaxSlicePorts    = 256
	MaxSliceBackends = 1000
	MaxHints         = 8 // of one backend, of zones and of nodes
)

// ServiceSlice is some of a cluster service's backends, all of one family: a change of
// one backend is a change of one slice.
type ServiceSlice struct {
	Key     ServiceSliceKey `json:"key"`
	Service string          `json:"service"` // of the namespace; it need not exist
	// Ports are the backends' ports, by the names of the service's; sorted by name and
	// protocol.
	Ports    []SlicePort      `json:"ports,omitempty"`
	Backends []ServiceBackend `json:"backends,omitempty"` // sorted by address, each once
}

// SlicePort is a port of all backends of a slice.
type SlicePort struct {
	Name     string   `json:"name,omitempty"`
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
}

// ServiceBackend is a backend of a cluster service: an endpoint named by its pod, else the
// holder of the address: a node (a pod in its network, the API server), or any machine.
type ServiceBackend struct {
	Addr netip.Addr `json:"addr"`
	// Pod is a UID; empty = it is no pod, or not known. Writers of slices may name any pod:
	// it counts only where that pod's endpoint has the address.
	Pod   string              `json:"pod,omitempty"`
	Node  NodeName            `json:"node,omitempty"` // that it is on, if anybody says so
	Zone  string              `json:"zone,omitempty"`
	State ServiceBackendState `json:"state,omitempty"`
	// ForZones and ForNodes are hints: whose clients should take it, while each backend of
	// the service that could be chosen has such hints; sorted.
	ForZones []string   `json:"forZones,omitempty"`
	ForNodes []NodeName `json:"forNodes,omitempty"`
}

// ServiceKey returns the service that the slice is of.
func (s ServiceSlice) ServiceKey() ServiceKey { return s.clusterKey().ServiceKey() }

func (s ServiceSlice) clusterKey() ClusterServiceKey {
	return ClusterServiceKey{s.Key.Namespace, s.Service}
}

// ServiceBackendState says whether connections go to a backend.
type ServiceBackendState string

// The states of backends.
const (
	ServiceBackendReady    ServiceBackendState = ""
	ServiceBackendDraining ServiceBackendState = "draining" // terminating and still serving: it gets new connections only while no backend is ready
	ServiceBackendUnready  ServiceBackendState = "unready"  // nothing new goes there
)

// Equal compares two slices by what they say.
func (s ServiceSlice) Equal(o ServiceSlice) bool {
	return s.Key == o.Key && s.Service == o.Service && slices.Equal(s.Ports, o.Ports) && slices.EqualFunc(s.Backends, o.Backends, ServiceBackend.Equal)
}

// Equal compares two backends by what they say.
func (b ServiceBackend) Equal(o ServiceBackend) bool {
	return b.Addr == o.Addr && b.Pod == o.Pod && b.Node == o.Node && b.Zone == o.Zone && b.State == o.State &&
		slices.Equal(b.ForZones, o.ForZones) && slices.Equal(b.ForNodes, o.ForNodes)
}

// CompareSlicePorts orders the ports of a slice.
func CompareSlicePorts(a, b SlicePort) int {
	if a.Name != b.Name {
		if a.Name < b.Name {
			return -1
		}
		return 1
	}
	return int(a.Protocol) - int(b.Protocol)
}

// Validate checks the slice. The error is of kind ErrInvalid.
func (s ServiceSlice) Validate() error {
	if _, err := ParseNamespaceName(string(s.Key.Namespace)); err != nil {
		return err
	}
	if len(s.Key.Name) > 253 || !isName(s.Key.Name) {
		return InvalidField("slice", s.Key.Name, "must be 1-253 letters, digits and inner hyphens, in labels joined by dots")
	}
	if err := s.clusterKey().validate(); err != nil {
		return err
	}
	if len(s.Ports) > MaxSlicePorts {
		return InvalidField("ports", len(s.Ports), fmt.Sprintf("must be at most %d", MaxSlicePorts))
	}
	for i, p := range s.Ports {
		if err := validateNamedPort(p.Protocol, p.Port, p.Name); err != nil {
			return err
		}
		if i > 0 && CompareSlicePorts(s.Ports[i-1], p) >= 0 {
			return InvalidField("ports", p.Name, "must be sorted by name and protocol, each once")
		}
	}
	if len(s.Backends) > MaxSliceBackends {
		return InvalidField("backends", len(s.Backends), fmt.Sprintf("must be at most %d", MaxSliceBackends))
	}
	for i, b := range s.Backends {
		if err := b.validate(); err != nil {
			return err
		}
		if i > 0 && (!s.Backends[i-1].Addr.Less(b.Addr) || s.Backends[i-1].Addr.Is4() != b.Addr.Is4()) {
			return InvalidField("backends", b.Addr, "must be of one family, sorted by address, each once")
		}
	}
	return nil
}

func (b ServiceBackend) validate() error {
	if !IsServiceAddr(b.Addr) {
		return InvalidField("backends", b.Addr, WantServiceAddr)
	}
	switch b.State {
	case ServiceBackendReady, ServiceBackendDraining, ServiceBackendUnready:
	default:
		return InvalidField("state", b.State, "must be draining, unready or empty")
	}
	if b.Node != "" {
		if _, err := ParseNodeName(string(b.Node)); err != nil {
			return err
		}
	}
	if len(b.ForZones) > MaxHints || len(b.ForNodes) > MaxHints {
		return InvalidField("hints", len(b.ForZones)+len(b.ForNodes), fmt.Sprintf("must be at most %d of zones and of nodes", MaxHints))
	}
	for _, text := range append([]string{b.Pod, b.Zone}, b.ForZones...) {
		if err := checkText("backends", text, 253); err != nil {
			return err
		}
	}
	for _, n := range b.ForNodes {
		if _, err := ParseNodeName(string(n)); err != nil {
			return err
		}
	}
	if !slices.IsSorted(b.ForZones) || !slices.IsSorted(b.ForNodes) {
		return InvalidField("hints", b.Addr, "must be sorted")
	}
	return nil
}
