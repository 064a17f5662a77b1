package api

// Bgp makes a host speak BGP with routers of the network that it stands in. The
// first six fields are 1.x'.
type Bgp struct {
	Key        string `json:"key,omitempty"`
	AS         string `json:"as,omitempty"` // AS number of the host
	Hostname   string `json:"hostname,omitempty"`
	Neighbor   string `json:"neighbor,omitempty"`    // IPv4 address of the router
	NeighborAS string `json:"neighbor-as,omitempty"` // AS number of the router
	RouterIP   string `json:"routerip,omitempty"`    // IPv4 address of the host with prefix length

	RouterIP6    string `json:"routerip6,omitempty"`    // IPv6 address of the host with prefix length; empty = no routes of IPv6
	Neighbors    string `json:"neighbors,omitempty"`    // more routers, ADDRESS@AS, separated by commas
	Password     string `json:"password,omitempty"`     // of TCP MD5 signatures; shown as "********", which in a change keeps it
	MaxPrefixes  int    `json:"maxPrefixes,omitempty"`  // of each family that a router may tell of; 0 = 10000
	DefaultRoute bool   `json:"defaultRoute,omitempty"` // learn the default route too
	BFD          string `json:"bfd,omitempty"`          // "off" = failures are found by BGP alone
}

// ObjectKey returns the host's name.
func (o Bgp) ObjectKey() string { return o.Hostname }

// BgpOper is the operational state of a host's BGP speaker, as the host told last.
type BgpOper struct {
	AdminStatus    string   `json:"adminStatus,omitempty"`    // "enabled", or why the host does not speak
	NeighborStatus string   `json:"neighborStatus,omitempty"` // of each router, separated by commas
	NumRoutes      int      `json:"numRoutes,omitempty"`      // learned
	Routes         []string `json:"routes,omitempty"`         // the first of them
	Announced      int      `json:"announced,omitempty"`      // prefixes
	Prefixes       []string `json:"prefixes,omitempty"`       // that are announced, the first 200
	Problems       []string `json:"problems,omitempty"`       // sentences: what is wrong with its sessions and routes
}

// Bgps is the collection of hosts' BGP settings; the key is the host's name.
func (c *Client) Bgps() Resource[Bgp, BgpOper] {
	return Resource[Bgp, BgpOper]{c, "Bgps"}
}
