package api

// Global holds the settings of the cluster; its key is "global".
type Global struct {
	Key              string `json:"key,omitempty"`
	ArpMode          string `json:"arpMode,omitempty"` // proxy, flood
	FwdMode          string `json:"fwdMode,omitempty"` // bridge, routing
	Name             string `json:"name,omitempty"`    // always "global"
	NetworkInfraType string `json:"networkInfraType,omitempty"`
	PvtSubnet        string `json:"pvtSubnet,omitempty"` // IPv4 /16
	Vlans            string `json:"vlans,omitempty"`     // lo-hi
	Vxlans           string `json:"vxlans,omitempty"`    // lo-hi
	// GeneratedLabels are the labels of containers that policies cannot select by:
	// names, and prefixes that end in "." or "/". "default" stands for the list that a
	// new cluster has; none means as it is in a request, and that list in an answer.
	GeneratedLabels []string `json:"generatedLabels,omitempty"`
	// TenantPrefixes are where networks of tenant admins may have routes on hosts; when
	// there are some, BGP announces addresses within them alone. ["none"] empties the list.
	TenantPrefixes []string `json:"tenantPrefixes,omitempty"`
}

// ObjectKey returns "global".
func (o Global) ObjectKey() string { return o.Name }

// GlobalOper is the operational state of the cluster's settings.
type GlobalOper struct {
	ClusterMode     string `json:"clusterMode,omitempty"`
	DefaultNetwork  string `json:"defaultNetwork,omitempty"`
	FreeVXLANsStart int    `json:"freeVXLANsStart,omitempty"`
	NumNetworks     int    `json:"numNetworks,omitempty"`
	VlansInUse      string `json:"vlansInUse,omitempty"`  // ranges, comma-separated
	VxlansInUse     string `json:"vxlansInUse,omitempty"` // ranges, comma-separated
	// EndpointsToFollow is how many endpoints policies still select by the labels
	// that counted before GeneratedLabels changed.
	EndpointsToFollow int `json:"endpointsToFollow,omitempty"`
	// FormerLabels tells that not all endpoints have followed yet: no policy can
	// select by these either.
	FormerLabels []string `json:"formerLabels,omitempty"`
}

// Globals is the collection of the one global object, "global".
func (c *Client) Globals() Resource[Global, GlobalOper] {
	return Resource[Global, GlobalOper]{c, "globals"}
}
