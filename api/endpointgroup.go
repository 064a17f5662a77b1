package api

// EndpointGroup is a set of endpoints of one network that share policies.
type EndpointGroup struct {
	Key              string                `json:"key,omitempty"`
	CfgdTag          string                `json:"cfgdTag,omitempty"`
	ExtContractsGrps []string              `json:"extContractsGrps,omitempty"`
	GroupName        string                `json:"groupName,omitempty"`
	IPPool           string                `json:"ipPool,omitempty"` // first-last, inside the subnet
	NetProfile       string                `json:"netProfile,omitempty"`
	NetworkName      string                `json:"networkName,omitempty"`
	Owner            string                `json:"owner,omitempty"` // kubernetes: an object of Kubernetes has it; told, not asked for
	Policies         []string              `json:"policies,omitempty"`
	TenantName       string                `json:"tenantName,omitempty"`
	LinkSets         EndpointGroupLinkSets `json:"link-sets"`
	Links            EndpointGroupLinks    `json:"links"`
}

// EndpointGroupLinkSets are the many objects that a group is tied to.
type EndpointGroupLinkSets struct {
	ExtContractsGrps LinkSet `json:"ExtContractsGrps,omitempty"`
	MatchRules       LinkSet `json:"MatchRules,omitempty"` // rules that name the group
	Policies         LinkSet `json:"Policies,omitempty"`
	Services         LinkSet `json:"Services,omitempty"`
}

// EndpointGroupLinks are the single objects that a group is tied to.
type EndpointGroupLinks struct {
	AppProfile Link `json:"AppProfile"`
	NetProfile Link `json:"NetProfile"`
	Network    Link `json:"Network"`
	Tenant     Link `json:"Tenant"`
}

// ObjectKey returns "tenant:group".
func (o EndpointGroup) ObjectKey() string { return o.TenantName + ":" + o.GroupName }

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

// EndpointGroups is the collection of endpoint groups.
func (c *Client) EndpointGroups() Resource[EndpointGroup, EndpointGroupOper] {
	return Resource[EndpointGroup, EndpointGroupOper]{c, "endpointGroups"}
}
