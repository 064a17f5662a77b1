package api

// Inspection is the answer of /api/v1/inspect/: the object and its operational
// state. Kinds without configuration (endpoints) have no Config.
type Inspection[T, O any] struct {
	Config T `json:"Config,omitzero"`
	Oper   O `json:"Oper"`
}

// GlobalOper is the operational state of the cluster's settings.
type GlobalOper struct {
	ClusterMode     string `json:"clusterMode,omitempty"`
	DefaultNetwork  string `json:"defaultNetwork,omitempty"`
	FreeVXLANsStart int    `json:"freeVXLANsStart,omitempty"`
	NumNetworks     int    `json:"numNetworks,omitempty"`
	VlansInUse      string `json:"vlansInUse,omitempty"`  // ranges, comma-separated
	VxlansInUse     string `json:"vxlansInUse,omitempty"` // ranges, comma-separated
}

// TenantOper is the operational state of a tenant.
type TenantOper struct {
	EndpointGroups   []EndpointGroupOper `json:"endpointGroups,omitempty"`
	Endpoints        []EndpointOper      `json:"endpoints,omitempty"`
	Networks         []NetworkOper       `json:"networks,omitempty"`
	Policies         []PolicyOper        `json:"policies,omitempty"`
	Servicelbs       []ServiceLBOper     `json:"servicelbs,omitempty"`
	TotalAppProfiles int                 `json:"totalAppProfiles,omitempty"`
	TotalEPGs        int                 `json:"totalEPGs,omitempty"`
	TotalEndpoints   int                 `json:"totalEndpoints,omitempty"`
	TotalNetprofiles int                 `json:"totalNetprofiles,omitempty"`
	TotalNetworks    int                 `json:"totalNetworks,omitempty"`
	TotalPolicies    int                 `json:"totalPolicies,omitempty"`
	TotalServicelbs  int                 `json:"totalServicelbs,omitempty"`
}

// NetworkOper is the operational state of a network. PktTag is the VLAN id or
// VNI; ExternalPktTag is the VNI of a VXLAN network.
type NetworkOper struct {
	AllocatedAddressesCount int            `json:"allocatedAddressesCount,omitempty"`
	AllocatedIPAddresses    string         `json:"allocatedIPAddresses,omitempty"` // ranges: "10.1.1.1-10.1.1.3, 10.1.1.9"
	AvailableIPAddresses    string         `json:"availableIPAddresses,omitempty"` // likewise
	Endpoints               []EndpointOper `json:"endpoints,omitempty"`
	ExternalPktTag          int            `json:"externalPktTag,omitempty"`
	NetworkTag              string         `json:"networkTag,omitempty"` // cfgdTag, or network.tenant
	NumEndpoints            int            `json:"numEndpoints,omitempty"`
	PktTag                  int            `json:"pktTag,omitempty"`
}

// EndpointGroupOper is the operational state of a group.
type EndpointGroupOper struct {
	AllocatedIPAddresses string         `json:"allocatedIPAddresses,omitempty"`
	AvailableIPAddresses string         `json:"availableIPAddresses,omitempty"`
	Endpoints            []EndpointOper `json:"endpoints,omitempty"`
	ExternalPktTag       int            `json:"externalPktTag,omitempty"`
	GroupTag             string         `json:"groupTag,omitempty"` // cfgdTag, or group.tenant
	NumEndpoints         int            `json:"numEndpoints,omitempty"`
	PktTag               int            `json:"pktTag,omitempty"`
}

// PolicyOper is the operational state of a policy.
type PolicyOper struct {
	Endpoints        []EndpointOper `json:"endpoints,omitempty"`
	NumEndpoints     int            `json:"numEndpoints,omitempty"`
	PolicyViolations int            `json:"policyViolations,omitempty"`
}

// EndpointOper is the state of an endpoint.
type EndpointOper struct {
	Key              string            `json:"key,omitempty"` // what was asked for; only at the top
	ContainerID      string            `json:"containerID,omitempty"`
	ContainerName    string            `json:"containerName,omitempty"`
	EndpointGroupID  int               `json:"endpointGroupId,omitempty"`
	EndpointGroupKey string            `json:"endpointGroupKey,omitempty"` // group:tenant, as in 1.x
	EndpointID       string            `json:"endpointID,omitempty"`
	HomingHost       string            `json:"homingHost,omitempty"`
	IntfName         string            `json:"intfName,omitempty"`
	IPAddress        []string          `json:"ipAddress"`                  // IPv4, IPv6; empty text where there is none
	Labels           string            `json:"labels"`                     // "map[app:web]", as in 1.x: cannot always be read back
	LabelMap         map[string]string `json:"labelMap,omitempty"`         // the same labels
	ChosenMac        string            `json:"chosenMacAddress,omitempty"` // the MAC address, if it was asked for and not made of the address
	MacAddress       string            `json:"macAddress,omitempty"`
	Network          string            `json:"network,omitempty"`     // network.tenant
	ServiceName      string            `json:"serviceName,omitempty"` // group
	VirtualPort      string            `json:"virtualPort,omitempty"`
	VtepIP           string            `json:"vtepIP,omitempty"`
}
