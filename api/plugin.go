package api

// AllocAddressRequest asks for an address before its endpoint exists
// (POST /plugin/allocAddress).
type AllocAddressRequest struct {
	NetworkID            string `json:"NetworkID"`            // network.tenant, network.tenant:group or network:group.tenant
	AddressPool          string `json:"AddressPool"`          // CIDR, or CIDR:tenant when NetworkID is empty
	PreferredIPv4Address string `json:"PreferredIPv4Address"` // empty = any; an IPv6 address works too
	Host                 string `json:"Host,omitempty"`       // host that holds the reservation
	AnyHost              bool   `json:"AnyHost,omitempty"`    // an endpoint of any host may take it, not only of Host
	Requester            string `json:"Requester,omitempty"`  // who on that host; asking again gives the same address
}

// AllocAddressResponse carries the address with its prefix length.
type AllocAddressResponse struct {
	NetworkID   string `json:"NetworkID"`
	IPv4Address string `json:"IPv4Address"` // "10.1.1.2/24"
}

// ReleaseAddressRequest gives an address back (POST /plugin/releaseAddress).
type ReleaseAddressRequest struct {
	NetworkID   string `json:"NetworkID"`
	IPv4Address string `json:"IPv4Address"` // with or without prefix length
}

// ConfigEP is what the caller says about an endpoint to be created.
type ConfigEP struct {
	Container   string            `json:"Container"` // container id
	Host        string            `json:"Host"`
	IPAddress   string            `json:"IPAddress"`             // empty = allocate
	IPv6Address string            `json:"IPv6Address,omitempty"` // empty = allocate, on a network with IPv6
	MacAddress  string            `json:"MacAddress,omitempty"`  // empty = the one made of the address
	ServiceName string            `json:"ServiceName"`           // group
	Labels      map[string]string `json:"Labels,omitempty"`
	LabelsLater bool              `json:"LabelsLater,omitempty"` // updateEndpoint tells the labels; until then policies that select by labels deny what they might deny
	Health      string            `json:"Health,omitempty"`      // Healthy or Unhealthy; empty = healthy
	// Pod is the pod of Kubernetes that the endpoint is of. Where netmaster follows
	// Kubernetes, the labels, the group, the namespace and the named ports are the pod's,
	// and Labels and ServiceName are not looked at.
	Pod   *Pod   `json:"Pod,omitempty"`
	Rates *Rates `json:"Rates,omitempty"` // its own limits; nil = none. Of a pod that is followed, the pod's annotations count
}

// Rates limit one endpoint beside its group's net profile, of which the lower counts:
// in bits of IP a second, 1,000 to 10,000,000,000,000, and bursts in bytes, 2,000 to
// 268,435,455. 0 = no limit, and a burst chosen from the rate.
type Rates struct {
	Send         uint64 `json:"send,omitempty"`
	SendBurst    uint64 `json:"sendBurst,omitempty"`
	Receive      uint64 `json:"receive,omitempty"`
	ReceiveBurst uint64 `json:"receiveBurst,omitempty"`
}

// Pod names a pod of Kubernetes. A pod that is deleted and made again under its name has
// another UID.
type Pod struct {
	Namespace string `json:"Namespace"`
	Name      string `json:"Name"`
	UID       string `json:"UID"`
}

// PodPlacementRequest asks where an interface of a pod belongs: the main one, which labels
// place, or a further one, which its CNI configuration places in the pod's tenant.
type PodPlacementRequest struct {
	Namespace string        `json:"Namespace"`
	Name      string        `json:"Name"`
	UID       string        `json:"UID"`                 // empty = the pod that has the name now
	Interface *PodInterface `json:"Interface,omitempty"` // nil = the main one
}

// PodInterface is what the configuration of a further interface of a pod asks for.
type PodInterface struct {
	TenantName  string `json:"TenantName,omitempty"`  // empty = the pod's
	ServiceName string `json:"ServiceName,omitempty"` // group; empty = none
}

// PodPlacement is where a pod belongs; of a further interface only the tenant.
type PodPlacement struct {
	Followed    bool   `json:"Followed"`      // false = netmaster follows no Kubernetes, and the rest is empty
	UID         string `json:"UID,omitempty"` // the pod's, of that name if it was asked for without
	TenantName  string `json:"TenantName,omitempty"`
	NetworkName string `json:"NetworkName,omitempty"`
	ServiceName string `json:"ServiceName,omitempty"` // group; empty = none
	IPAddress   string `json:"IPAddress,omitempty"`   // that it asks for; empty = any
	IPv6Address string `json:"IPv6Address,omitempty"` // likewise
}

// EndpointPlacement is where an endpoint is to be: POST /plugin/network answers with the group's
// network where none is named. Group and network must exist and belong together.
type EndpointPlacement struct {
	TenantName  string `json:"TenantName"`
	NetworkName string `json:"NetworkName,omitempty"`
	ServiceName string `json:"ServiceName,omitempty"` // group; empty = none
}

// CreateEndpointRequest creates an endpoint (POST /plugin/createEndpoint).
// Sending it again for the same endpoint and container answers the same.
type CreateEndpointRequest struct {
	TenantName   string   `json:"TenantName"`
	NetworkName  string   `json:"NetworkName"`
	ServiceName  string   `json:"ServiceName"` // group; empty = none
	EndpointID   string   `json:"EndpointID"`
	EPCommonName string   `json:"EPCommonName"`
	ConfigEP     ConfigEP `json:"ConfigEP"`
}

// EndpointConfig is an endpoint as stored.
type EndpointConfig struct {
	ID               string            `json:"id"`    // network.tenant-endpoint
	NetID            string            `json:"netID"` // network.tenant
	EndpointID       string            `json:"endpointID"`
	ServiceName      string            `json:"serviceName"`
	EndpointGroupID  int               `json:"endpointGroupId"`
	EndpointGroupKey string            `json:"endpointGroupKey"` // group:tenant
	IPAddress        string            `json:"ipAddress"`        // without prefix length
	IPv6Address      string            `json:"ipv6Address"`
	MacAddress       string            `json:"macAddress"`
	HomingHost       string            `json:"homingHost"`
	IntfName         string            `json:"intfName"`
	VtepIP           string            `json:"vtepIP"`
	Labels           map[string]string `json:"labels"`
	ContainerID      string            `json:"containerId"`
	EPCommonName     string            `json:"epCommonName"`
}

// CreateEndpointResponse is the endpoint, and the store revision at which it
// was committed: an agent whose mirror has reached it knows the endpoint.
type CreateEndpointResponse struct {
	EndpointConfig EndpointConfig `json:"EndpointConfig"`
	Revision       int64          `json:"revision,omitempty"`
	// GlobalRevision is the revision of the namespaces and settings on which policies
	// depended then: an agent follows them apart from the tenant's rows.
	GlobalRevision int64 `json:"globalRevision,omitempty"`
	// TenantWritten and TenantDeleted are when something of the tenant that is no endpoint
	// (networks, groups, policies, rules, identities, services) was written, and deleted,
	// last: an agent follows that apart from endpoints. 0 = it is not known.
	TenantWritten int64 `json:"tenantWritten,omitempty"`
	TenantDeleted int64 `json:"tenantDeleted,omitempty"`
}

// DeleteEndpointRequest deletes an endpoint (POST /plugin/deleteEndpoint).
type DeleteEndpointRequest struct {
	TenantName  string `json:"TenantName"`
	NetworkName string `json:"NetworkName"`
	EndpointID  string `json:"EndpointID"`
	// These are not looked at, as in 1.x: the other three name the endpoint.
	ServiceName string `json:"ServiceName"`
	IPv4Address string `json:"IPv4Address"`
}

// DeleteEndpointResponse is the endpoint that was deleted.
type DeleteEndpointResponse struct {
	EndpointConfig EndpointConfig `json:"EndpointConfig"`
	Revision       int64          `json:"revision,omitempty"`
}

// The events of UpdateEndpointRequest.
const (
	EventStart = "start" // the container runs: its id, name and labels are known
	EventDie   = "die"   // the container has stopped
)

// What a container's health check says.
const (
	Healthy   = "healthy"
	Unhealthy = "unhealthy"
)

// UpdateEndpointRequest tells what the runtime knows of an endpoint's container
// (POST /plugin/updateEndpoint).
type UpdateEndpointRequest struct {
	IPAddress    string            `json:"IPAddress"`
	ContainerID  string            `json:"ContainerID"`
	Labels       map[string]string `json:"Labels"` // added to the endpoint's own
	Tenant       string            `json:"Tenant"`
	Network      string            `json:"Network"`
	Event        string            `json:"Event"`
	EndpointID   string            `json:"EndpointID"`
	EPCommonName string            `json:"EPCommonName"`
	// RemovedLabels are keys of labels that the container does not have any more.
	RemovedLabels []string `json:"RemovedLabels,omitempty"`
	// Health is what the container's health check says, Healthy or Unhealthy; empty =
	// as it was. Services send no new connections to who is unhealthy.
	Health string `json:"Health,omitempty"`
}

// UpdateEndpointResponse names the endpoint's address.
type UpdateEndpointResponse struct {
	IPAddress string `json:"IPAddress"`
}
