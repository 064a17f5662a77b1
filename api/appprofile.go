package api

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

// AppProfileOper is the operational state of an app profile.
type AppProfileOper struct {
	Problems []AciProblem `json:"problems,omitempty"` // parts that the ACI fabric does not have
}

// AppProfiles is the collection of app profiles.
func (c *Client) AppProfiles() Resource[AppProfile, AppProfileOper] {
	return Resource[AppProfile, AppProfileOper]{c, "appProfiles"}
}
