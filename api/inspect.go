package api

// Inspection is the answer of /api/v1/inspect/: the object and its operational
// state. Kinds without configuration (endpoints) have no Config.
type Inspection[T, O any] struct {
	Config T `json:"Config,omitzero"`
	Oper   O `json:"Oper"`
}

// EndpointOper is the state of an endpoint.
type EndpointOper struct {
	Key              string            `json:"key,omitempty"` // what was asked for; only at the top
	ContainerID      string            `json:"containerID,omitempty"`
	ContainerName    string            `json:"containerName,omitempty"`
	Draining         bool              `json:"draining,omitempty"` // services send it no new connections, as an operator said
	EndpointGroupID  int               `json:"endpointGroupId,omitempty"`
	EndpointGroupKey string            `json:"endpointGroupKey,omitempty"` // group:tenant, as in 1.x
	EndpointID       string            `json:"endpointID,omitempty"`
	Health           string            `json:"health,omitempty"` // Unhealthy, if its container's health check says so
	HomingHost       string            `json:"homingHost,omitempty"`
	IntfName         string            `json:"intfName,omitempty"`
	IPAddress        []string          `json:"ipAddress"`                  // IPv4, IPv6; empty text where there is none
	Labels           string            `json:"labels,omitempty"`           // "map[app:web]", as in 1.x: cannot always be read back
	LabelMap         map[string]string `json:"labelMap,omitempty"`         // the same labels
	ChosenMac        string            `json:"chosenMacAddress,omitempty"` // the MAC address, if it was asked for and not made of the address
	MacAddress       string            `json:"macAddress,omitempty"`
	Network          string            `json:"network,omitempty"`     // network.tenant
	Rates            *Rates            `json:"rates,omitempty"`       // its own limits, beside its group's net profile
	ServiceName      string            `json:"serviceName,omitempty"` // group
	VirtualPort      string            `json:"virtualPort,omitempty"`
	VtepIP           string            `json:"vtepIP,omitempty"`
}
