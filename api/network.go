package api

// Network is a layer 2 segment with its subnets.
type Network struct {
	Key         string          `json:"key,omitempty"`
	CfgdTag     string          `json:"cfgdTag,omitempty"`
	Encap       string          `json:"encap,omitempty"` // vlan, vxlan
	Gateway     string          `json:"gateway,omitempty"`
	IPv6Gateway string          `json:"ipv6Gateway,omitempty"`
	IPv6Subnet  string          `json:"ipv6Subnet,omitempty"`
	Native      bool            `json:"native,omitempty"` // hosts know its containers by their own addresses
	NetworkName string          `json:"networkName,omitempty"`
	Owner       string          `json:"owner,omitempty"`  // kubernetes: an object of Kubernetes has it; told, not asked for
	NwType      string          `json:"nwType,omitempty"` // data (default), infra
	PktTag      int             `json:"pktTag,omitempty"` // as asked for; 0 = allocate
	Subnet      string          `json:"subnet,omitempty"` // CIDR, or first-last/len
	TenantName  string          `json:"tenantName,omitempty"`
	LinkSets    NetworkLinkSets `json:"link-sets"`
	Links       NetworkLinks    `json:"links"`
}

// NetworkLinkSets are what refers to a network.
type NetworkLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	Servicelbs     LinkSet `json:"Servicelbs,omitempty"`
	Services       LinkSet `json:"Services,omitempty"`
}

// NetworkLinks are what a network refers to.
type NetworkLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:network".
func (o Network) ObjectKey() string { return o.TenantName + ":" + o.NetworkName }

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

// Networks is the collection of networks.
func (c *Client) Networks() Resource[Network, NetworkOper] {
	return Resource[Network, NetworkOper]{c, "networks"}
}
