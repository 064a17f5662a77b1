package api

// NetProfile limits and marks the traffic of the groups that name it.
type NetProfile struct {
	Key         string             `json:"key,omitempty"`
	DSCP        int                `json:"DSCP,omitempty"`      // 0-63, 0 = packets are not marked
	Bandwidth   string             `json:"bandwidth,omitempty"` // "10 kbps", "100mbps", "2g"; empty = no limit
	Burst       int                `json:"burst,omitempty"`     // kilobytes, 2-10486; 0 = chosen from the bandwidth
	ProfileName string             `json:"profileName,omitempty"`
	TenantName  string             `json:"tenantName,omitempty"`
	LinkSets    NetProfileLinkSets `json:"link-sets"`
	Links       NetProfileLinks    `json:"links"`
}

// NetProfileLinkSets are the groups that name a profile.
type NetProfileLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
}

// NetProfileLinks are what a profile refers to.
type NetProfileLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:profile".
func (o NetProfile) ObjectKey() string { return o.TenantName + ":" + o.ProfileName }

// AppProfile ties groups together; with ACI they become one application.
type AppProfile struct {
	Key            string             `json:"key,omitempty"`
	AppProfileName string             `json:"appProfileName,omitempty"`
	EndpointGroups []string           `json:"endpointGroups,omitempty"` // group names; a group is in one profile at most
	TenantName     string             `json:"tenantName,omitempty"`
	LinkSets       AppProfileLinkSets `json:"link-sets"`
	Links          AppProfileLinks    `json:"links"`
}

// AppProfileLinkSets are the groups of a profile.
type AppProfileLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
}

// AppProfileLinks are what a profile refers to.
type AppProfileLinks struct {
	Tenant Link `json:"Tenant"`
}

// ObjectKey returns "tenant:profile".
func (o AppProfile) ObjectKey() string { return o.TenantName + ":" + o.AppProfileName }

// ExtContractsGroup names contracts of an ACI fabric that groups provide or
// consume.
type ExtContractsGroup struct {
	Key                string                    `json:"key,omitempty"`
	Contracts          []string                  `json:"contracts,omitempty"` // such as "uni/tn-common/brc-web"
	ContractsGroupName string                    `json:"contractsGroupName,omitempty"`
	ContractsType      string                    `json:"contractsType,omitempty"` // provided, consumed
	TenantName         string                    `json:"tenantName,omitempty"`
	LinkSets           ExtContractsGroupLinkSets `json:"link-sets"`
}

// ExtContractsGroupLinkSets are the endpoint groups that name a contracts group.
type ExtContractsGroupLinkSets struct {
	EndpointGroups LinkSet `json:"EndpointGroups,omitempty"`
}

// ObjectKey returns "tenant:contracts group".
func (o ExtContractsGroup) ObjectKey() string { return o.TenantName + ":" + o.ContractsGroupName }
