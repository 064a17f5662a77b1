package model

import (
	"cmp"
	"fmt"
	"slices"
)

// NamespaceName is the name of an orchestrator's namespace: of Kubernetes, a DNS
// label. It is unique within the cluster, whatever the tenants of its pods.
type NamespaceName string

// NamespaceNameLabel is the label by which each namespace is selected by its name,
// as in Kubernetes; it is there whatever the namespace's row says.
const NamespaceNameLabel = "kubernetes.io/metadata.name"

// Namespace is what policies can ask of a namespace. Endpoints in it carry its name
// in their identity, and not its labels: these change for all of them at once.
type Namespace struct {
	Name   NamespaceName     `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// ParseNamespaceName checks a namespace's name: a DNS label. The error is of kind
// ErrInvalid.
func ParseNamespaceName(s string) (NamespaceName, error) {
	if len(s) > 63 || !isDNSLabel(s) {
		return "", InvalidField("namespace", s, "must be 1-63 small letters, digits and inner hyphens")
	}
	return NamespaceName(s), nil
}

func isDNSLabel(s string) bool {
	if s == "" || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// Validate checks name and labels. The error is of kind ErrInvalid.
func (n Namespace) Validate() error {
	if _, err := ParseNamespaceName(string(n.Name)); err != nil {
		return err
	}
	return ValidateLabels(n.Labels)
}

// NamedPort is a port of a container that rules may name.
type NamedPort struct {
	Name     string   `json:"name"` // an IANA service name (RFC 6335): at most 15 small letters, digits and inner hyphens
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
}

// CompareNamedPorts orders ports by name and protocol.
func CompareNamedPorts(a, b NamedPort) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
}

// MaxNamedPorts is how many named ports an endpoint has at most.
const MaxNamedPorts = 64

// ValidateNamedPorts checks ports: sorted by name and protocol, each once.
func ValidateNamedPorts(ports []NamedPort) error {
	if len(ports) > MaxNamedPorts {
		return InvalidField("ports", len(ports), fmt.Sprintf("must be at most %d", MaxNamedPorts))
	}
	for i, p := range ports {
		switch {
		case !isPortName(p.Name):
			return InvalidField("ports", p.Name, wantPortName)
		case !p.Protocol.HasPorts() || p.Port == 0:
			return InvalidField("ports", p.Name, "must be a port from 1 to 65535 of tcp, udp or sctp")
		case i > 0 && CompareNamedPorts(ports[i-1], p) >= 0:
			return InvalidField("ports", p.Name, "must be sorted by name and protocol, each once")
		}
	}
	return nil
}

const wantPortName = "must be 1-15 small letters, digits and inner hyphens"

func isPortName(s string) bool { return len(s) <= 15 && isDNSLabel(s) }

// PortNamed returns the port that an identity gives a name, by protocol.
func (r IdentityRecord) PortNamed(name string, p Protocol) (port uint16, ok bool) {
	at, ok := slices.BinarySearchFunc(r.Ports, NamedPort{Name: name, Protocol: p}, CompareNamedPorts)
	if !ok {
		return 0, false
	}
	return r.Ports[at].Port, true
}
