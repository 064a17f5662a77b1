package api

// Bgp makes a host speak BGP with a router of the network that it stands in.
type Bgp struct {
	Key        string `json:"key,omitempty"`
	AS         string `json:"as,omitempty"` // AS number of the host
	Hostname   string `json:"hostname,omitempty"`
	Neighbor   string `json:"neighbor,omitempty"`    // IPv4 address of the router
	NeighborAS string `json:"neighbor-as,omitempty"` // AS number of the router
	RouterIP   string `json:"routerip,omitempty"`    // IPv4 address of the host with prefix length
}

// ObjectKey returns the host's name.
func (o Bgp) ObjectKey() string { return o.Hostname }

// BgpOper is the operational state of a host's BGP speaker.
type BgpOper struct {
	AdminStatus    string   `json:"adminStatus,omitempty"`
	NeighborStatus string   `json:"neighborStatus,omitempty"`
	NumRoutes      int      `json:"numRoutes,omitempty"`
	Routes         []string `json:"routes,omitempty"`
}

// AciGw holds the settings of an ACI fabric; its key is "aciGw".
type AciGw struct {
	Key                 string `json:"key,omitempty"`
	EnforcePolicies     string `json:"enforcePolicies,omitempty"`     // yes, no
	IncludeCommonTenant string `json:"includeCommonTenant,omitempty"` // yes, no
	Name                string `json:"name,omitempty"`                // always "aciGw"
	NodeBindings        string `json:"nodeBindings,omitempty"`        // "topology/pod-1/node-101", comma-separated
	PathBindings        string `json:"pathBindings,omitempty"`        // "topology/pod-1/paths-101/pathep-[eth1/14]", comma-separated
	PhysicalDomain      string `json:"physicalDomain,omitempty"`
}

// ObjectKey returns "aciGw".
func (o AciGw) ObjectKey() string { return o.Name }

// AciGwOper is the operational state of the fabric.
type AciGwOper struct {
	NumAppProfiles int `json:"numAppProfiles,omitempty"`
}
