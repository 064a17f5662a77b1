package api

// Tenant is a name space for networks, groups and policies.
type Tenant struct {
	Key            string `json:"key,omitempty"`
	DefaultNetwork string `json:"defaultNetwork,omitempty"`
	Owner          string `json:"owner,omitempty"` // kubernetes: an object of Kubernetes has it; told, not asked for
	TenantName     string `json:"tenantName,omitempty"`
	// SharedNetworks are networks of other tenants that the tenant's containers reach in
	// forwarding mode routing, each TENANT:NETWORK. In a request nil stands for those
	// that it has.
	SharedNetworks []string       `json:"sharedNetworks,omitzero"`
	LinkSets       TenantLinkSets `json:"link-sets"`
}

// TenantLinkSets are what a tenant holds.
type TenantLinkSets struct {
	AppProfiles    LinkSet `json:"AppProfiles,omitempty"`
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
	NetProfiles    LinkSet `json:"NetProfiles,omitempty"`
	Networks       LinkSet `json:"Networks,omitempty"`
	Policies       LinkSet `json:"Policies,omitempty"`
	Servicelbs     LinkSet `json:"Servicelbs,omitempty"`
	VolumeProfiles LinkSet `json:"VolumeProfiles,omitempty"`
	Volumes        LinkSet `json:"Volumes,omitempty"`
}

// ObjectKey returns the tenant's name.
func (o Tenant) ObjectKey() string { return o.TenantName }

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

// Tenants is the collection of tenants.
func (c *Client) Tenants() Resource[Tenant, TenantOper] {
	return Resource[Tenant, TenantOper]{c, "tenants"}
}
