package api

// ServiceLB is a virtual address of a network whose connections are spread
// over the endpoints that have all labels of its selectors.
type ServiceLB struct {
	Key         string         `json:"key,omitempty"`
	Affinity    string         `json:"affinity,omitempty"`    // how long a client stays with its provider: "10m", or "off"; empty = 3h
	IPAddress   string         `json:"ipAddress,omitempty"`   // as asked for, of either family; empty = any of the network's
	IPv6Address string         `json:"ipv6Address,omitempty"` // as asked for beside it; empty = any of the network's
	NetworkName string         `json:"networkName,omitempty"`
	Ports       []string       `json:"ports,omitempty"`     // "service port:provider port:protocol", or that and ":name"
	Selectors   []string       `json:"selectors,omitempty"` // "key=value"
	ServiceName string         `json:"serviceName,omitempty"`
	TenantName  string         `json:"tenantName,omitempty"`
	Links       ServiceLBLinks `json:"links"`
}

// ServiceLBLinks are what a service refers to.
type ServiceLBLinks struct {
	Network Link `json:"Network"`
	Tenant  Link `json:"Tenant"`
}

// ObjectKey returns "tenant:service".
func (o ServiceLB) ObjectKey() string { return o.TenantName + ":" + o.ServiceName }

// ServiceLBOper is the operational state of a service.
type ServiceLBOper struct {
	NumProviders int            `json:"numProviders,omitempty"`
	Problem      string         `json:"problem,omitempty"` // why no provider gets new connections
	Providers    []EndpointOper `json:"providers,omitempty"`
	ServiceVip   string         `json:"serviceVip,omitempty"`
	ServiceVip6  string         `json:"serviceVip6,omitempty"` // IPv6, beside an IPv4 one
}

// ServiceLBs is the collection of load-balanced services.
func (c *Client) ServiceLBs() Resource[ServiceLB, ServiceLBOper] {
	return Resource[ServiceLB, ServiceLBOper]{c, "serviceLBs"}
}
