package tables

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
)

// HostStatusScope is the scope of all hosts' status.
const HostStatusScope = OperPrefix + "host/"

// HostStatus is what an agent observes of its host: written when it changes, and
// once a minute, which makes it the host's last word. Whether the host is alive
// its registration tells (RegisteredHosts).
type HostStatus struct {
	Host      model.HostName    `json:"host"`
	Driver    string            `json:"driver"`
	DriverWhy string            `json:"driverWhy,omitempty"` // a sentence: why the host has this one
	Version   string            `json:"version,omitempty"`
	Updated   string            `json:"updated"`            // RFC 3339, by the host's clock
	Revision  int64             `json:"revision"`           // of the last desired state applied
	Verified  string            `json:"verified,omitempty"` // RFC 3339, by the host's clock: when the last comparison of the whole data plane began
	Ports     int               `json:"ports"`              // programmed
	Pending   int               `json:"pending"`            // wanted but not programmed
	Error     string            `json:"error,omitempty"`
	Problems  map[string]string `json:"problems,omitempty"` // object -> sentence; the first hundred

	Attachments int                  `json:"attachments,omitempty"`
	Ready       bool                 `json:"ready,omitempty"`      // as /readyz says
	Conditions  []HostCondition      `json:"conditions,omitempty"` // only conditions that do not hold; nil from agents that tell none
	Kinds       map[string]int       `json:"kinds,omitempty"`      // how many problems, by the kind of their object
	Tables      map[string]TableFill `json:"tables,omitempty"`     // of the data plane, as of the last word
	BGP         *BGPStatus           `json:"bgp,omitempty"`        // nil = the host has no BGP settings, or its agent knows of none

	Surroundings *Surroundings `json:"surroundings,omitempty"` // nil from agents that tell none

	Published PublishedPorts `json:"published,omitzero"`
}

// PublishedPorts are the ports of a host that lead to containers.
type PublishedPorts struct {
	Ports    []PublishedPort `json:"ports,omitempty"`    // the first MaxPublished
	Unlisted int             `json:"unlisted,omitempty"` // how many more there are
}

// PublishedPort leads a port of a host to a container there.
type PublishedPort struct {
	Endpoint model.EndpointKey `json:"endpoint"`
	Protocol model.Protocol    `json:"protocol"`
	HostIP   netip.Addr        `json:"hostIP,omitzero"` // zero = all addresses of the host; 0.0.0.0, :: = all of a family
	HostPort uint16            `json:"hostPort"`
	Port     uint16            `json:"port"` // the container's
}

// MaxPublished is how many published ports a host reports at most.
const MaxPublished = 256

// Surroundings are the networks around a host that its containers' networks must not meet.
type Surroundings struct {
	Addresses []netip.Addr `json:"addresses,omitempty"` // gateways of its default routes, and name servers
	VLANs     []uint16     `json:"vlans,omitempty"`     // of which the host itself has interfaces
}

// MaxSurroundings is how many addresses, and how many VLANs, a host reports at most.
const MaxSurroundings = 64

// BGPStatus is how a host's BGP speaker fares.
type BGPStatus struct {
	Admin     string   `json:"admin"`           // "enabled", or why it does not speak
	Neighbors string   `json:"neighbors"`       // of each its address and state, separated by commas
	Routes    int      `json:"routes"`          // learned
	First     []string `json:"first,omitempty"` // of those
	Announced int      `json:"announced"`       // prefixes
	// Prefixes are the announced prefixes, the first 200.
	Prefixes []string `json:"prefixes,omitempty"`
}

// HostCondition is a condition of a host's health that does not hold.
type HostCondition struct {
	Name     string `json:"name"`
	Severity string `json:"severity,omitempty"` // error, warning, notice; empty = error
	Message  string `json:"message"`
}

// TableFill tells how full a table is.
type TableFill struct {
	Entries  uint64 `json:"entries"`
	Capacity uint64 `json:"capacity"` // 0 = unbounded
}

// HostStatuses holds what agents observe, by host.
var HostStatuses = declare(TableSpec[model.HostName, HostStatus]{
	Noun: "host status", Version: 1, Unlisted: true,
	Path:  "oper/host/*",
	Parse: parseHost,
	KeyOf: func(s HostStatus) model.HostName { return s.Host },
	Scope: func(model.HostName) string { return HostStatusScope },
	Name:  hostSegment,
})
