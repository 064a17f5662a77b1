package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Endpoints are no collection: runtimes create them, and lists to be applied.
var _ = register(Kind{
	Name: "endpoint", Order: 150,
})

// EndpointID is chosen by the runtime; see ParseEndpointID.
type EndpointID string

const maxEndpointID = 253

func isEndpointID(s string) bool {
	if s == "" || len(s) > maxEndpointID || !isAlnum(s[0]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '_' && c != '.' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// ParseEndpointID checks an endpoint's id: 1-253 letters, digits and "_.:-",
// the first a letter or digit. A slash is refused: 1.x accepted one and then
// lost every endpoint listing (known fault 5).
func ParseEndpointID(s string) (EndpointID, error) {
	if !isEndpointID(s) {
		return "", InvalidField("EndpointID", s, "must be 1-253 letters, digits or any of _.:-, and start with a letter or digit")
	}
	return EndpointID(s), nil
}

// EndpointKey names an endpoint within the cluster: ids are unique within a
// network, as in 1.x.
type EndpointKey struct {
	Network NetworkKey `json:"network"`
	ID      EndpointID `json:"id"`
}

// Compare orders keys by tenant, network and id.
func (k EndpointKey) Compare(o EndpointKey) int {
	return cmp.Or(cmp.Compare(k.Network.Tenant, o.Network.Tenant), cmp.Compare(k.Network.Name, o.Network.Name), cmp.Compare(k.ID, o.ID))
}

func (k EndpointKey) String() string { return k.Network.String() + ":" + string(k.ID) }

// ParseEndpointKey parses "tenant:network:id"; the id may hold colons. The
// error is of kind ErrInvalid.
func ParseEndpointKey(s string) (EndpointKey, error) {
	p := strings.SplitN(s, ":", 3)
	if len(p) != 3 {
		return EndpointKey{}, InvalidField("key", s, "must be tenant:network:endpoint")
	}
	n, err := ParseNetworkKey(p[0] + ":" + p[1])
	if err != nil {
		return EndpointKey{}, err
	}
	id, err := ParseEndpointID(p[2])
	return EndpointKey{n, id}, err
}

// Endpoint is a container's interface on a network.
type Endpoint struct {
	Key       EndpointKey       `json:"key"`
	Group     GroupName         `json:"group,omitempty"`
	Identity  Identity          `json:"identity"`
	Host      HostName          `json:"host,omitempty"`
	IPv4      netip.Addr        `json:"ipv4,omitzero"`
	IPv6      netip.Addr        `json:"ipv6,omitzero"`
	MAC       MAC               `json:"mac"`
	Name      string            `json:"name,omitempty"`      // common name (container name)
	Container string            `json:"container,omitempty"` // container id, when the runtime told it
	Labels    map[string]string `json:"labels,omitempty"`
	Unhealthy bool              `json:"unhealthy,omitempty"` // its container's health check says so: services send nothing new there
	Draining  bool              `json:"draining,omitempty"`  // an operator says so: services send nothing new there, what lives goes on
	// LabelsLater: the runtime knows the labels when the container starts; see
	// IdentityRecord.
	LabelsLater bool `json:"labelsLater,omitempty"`
	// Namespace and Ports are those of IdentityRecord. The namespace never changes.
	Namespace NamespaceName `json:"namespace,omitempty"`
	Ports     []NamedPort   `json:"ports,omitempty"`
	// Pod is the pod of Namespace that it is of; its labels and group are then the pod's,
	// and the keeper of Kubernetes changes them. Zero = none.
	Pod Pod `json:"pod,omitzero"`
	// Rates are its own, beside its group's net profile: the lower of both counts. Of a
	// pod that is followed they are the pod's.
	Rates Rates `json:"rates,omitzero"`
}

// Pod names a pod of a namespace; one that is made again under its name has another UID.
type Pod struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// KeepIPv4, KeepIPv6: it has asked for the address, which is kept for the pod that
	// comes back under its name.
	KeepIPv4 bool `json:"keepIPv4,omitempty"`
	KeepIPv6 bool `json:"keepIPv6,omitempty"`
}

// Limits of an endpoint's fields that a runtime gives.
const (
	MaxEndpointText = 256 // characters of an endpoint's common name and container id
	MaxLabels       = 128
	MaxLabelKey     = 317 // Kubernetes: prefix of 253, slash, name of 63
	MaxLabelValue   = 1024
)

// Validate checks the fields that a runtime gives (not Identity, which is derived, and
// not that addresses fit the network). A zero MAC means none.
func (e Endpoint) Validate() error {
	if err := e.Key.Network.validate(); err != nil {
		return err
	}
	if _, err := ParseEndpointID(string(e.Key.ID)); err != nil {
		return err
	}
	if err := optionalName("ServiceName", string(e.Group), MaxName); err != nil {
		return err
	}
	if err := optionalName("Host", string(e.Host), 256); err != nil {
		return err
	}
	if e.IPv4.IsValid() && !e.IPv4.Is4() {
		return InvalidField("IPAddress", e.IPv4, "must be an IPv4 address")
	}
	if e.IPv6.IsValid() && (!e.IPv6.Is6() || e.IPv6.Is4In6() || e.IPv6.Zone() != "") {
		return InvalidField("IPv6Address", e.IPv6, "must be an IPv6 address")
	}
	if e.MAC[0]&1 != 0 {
		return InvalidField("MacAddress", e.MAC, "must be a unicast address: an even first byte")
	}
	if err := checkText("EPCommonName", e.Name, MaxEndpointText); err != nil {
		return err
	}
	if err := checkText("ContainerID", e.Container, MaxEndpointText); err != nil {
		return err
	}
	if e.Namespace != "" {
		if _, err := ParseNamespaceName(string(e.Namespace)); err != nil {
			return err
		}
	}
	if err := ValidateNamedPorts(e.Ports); err != nil {
		return err
	}
	if err := checkText("Pod.Name", e.Pod.Name, MaxEndpointText); err != nil {
		return err
	}
	if err := checkText("Pod.UID", e.Pod.UID, MaxEndpointText); err != nil {
		return err
	}
	if (e.Pod.UID == "") != (e.Pod.Name == "") || e.Pod.UID != "" && e.Namespace == "" {
		return InvalidField("Pod", e.Pod.Name, "must have a namespace, a name and a UID")
	}
	if err := e.Rates.Validate(); err != nil {
		return err
	}
	return ValidateLabels(e.Labels)
}

// ValidateLabels checks a container's labels: at most MaxLabels, keys of 1 to
// MaxLabelKey bytes, printable, and values of at most MaxLabelValue, which may have
// several lines and steer nothing.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return InvalidField("Labels", len(labels), fmt.Sprintf("must be at most %d", MaxLabels))
	}
	for k, v := range labels {
		if k == "" || len(k) > MaxLabelKey || !printable(k) {
			return InvalidField("Labels", k, fmt.Sprintf("must have keys of 1 to %d bytes of printable characters", MaxLabelKey))
		}
		if len(v) > MaxLabelValue {
			return InvalidField("Labels", k, fmt.Sprintf("must have values of at most %d bytes", MaxLabelValue))
		}
		if hasControlCharacters(v) {
			return InvalidField("Labels", k, "must have values without control characters, other than tabs and ends of lines, and without marks of direction")
		}
	}
	return nil
}
