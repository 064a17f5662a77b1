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

// Bgps is the collection of hosts' BGP settings; the key is the host's name.
func (c *Client) Bgps() Resource[Bgp, BgpOper] {
	return Resource[Bgp, BgpOper]{c, "Bgps"}
}
