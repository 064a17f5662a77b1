package api

// NetProfile limits what each endpoint of the groups that name it sends and receives,
// and marks what it sends.
type NetProfile struct {
	Key              string             `json:"key,omitempty"`
	DSCP             int                `json:"DSCP,omitempty"`             // 0-63, 0 = packets are not marked
	Bandwidth        string             `json:"bandwidth,omitempty"`        // of what it sends: "10 kbps", "100mbps", "2g"; empty = no limit
	Burst            int                `json:"burst,omitempty"`            // kilobytes, 2-10486; 0 = chosen from the bandwidth
	ReceiveBandwidth string             `json:"receiveBandwidth,omitempty"` // of what it receives; 1.x had none
	ReceiveBurst     int                `json:"receiveBurst,omitempty"`
	Owner            string             `json:"owner,omitempty"` // kubernetes: an object of Kubernetes has it; told, not asked for
	ProfileName      string             `json:"profileName,omitempty"`
	TenantName       string             `json:"tenantName,omitempty"`
	LinkSets         NetProfileLinkSets `json:"link-sets"`
	Links            NetProfileLinks    `json:"links"`
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

// NetProfiles is the collection of net profiles; they have no operational state.
func (c *Client) NetProfiles() Resource[NetProfile, struct{}] {
	return Resource[NetProfile, struct{}]{c, "netprofiles"}
}
