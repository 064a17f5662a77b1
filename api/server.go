package api

// Version is the answer of GET /version.
type Version struct {
	GitCommit string `json:"GitCommit"`
	Version   string `json:"Version"`
	BuildTime string `json:"BuildTime"`
}

// Info is the answer of GET /info: the netmaster that answered, and the nodes
// that the service registry knows.
type Info struct {
	CurrentState   string   `json:"current-state"` // leader, follower
	LeaderIP       string   `json:"leader-ip"`     // IP:port; empty while there is no leader
	LocalIP        string   `json:"local-ip"`
	NetmasterNodes []string `json:"netmaster-nodes"`
	NetpluginNodes []string `json:"netplugin-nodes"`
}

// ServiceEntry is one instance of a service in the service registry, as stored
// under /contiv.io/service/<name>/<host>:<port>.
type ServiceEntry struct {
	ServiceName string `json:"ServiceName"`
	Role        string `json:"Role"` // leader, follower; empty for services without one
	Version     string `json:"Version"`
	TTL         int    `json:"TTL"` // seconds
	HostAddr    string `json:"HostAddr"`
	Port        int    `json:"Port"`
	Hostname    string `json:"Hostname"`
}

// ServiceInfo is one load-balanced service as GET /services lists it.
type ServiceInfo struct {
	ID          string                     `json:"id"` // service:tenant
	ServiceName string                     `json:"servicename"`
	TenantName  string                     `json:"tenantname"`
	Subnet      string                     `json:"subnet"` // network
	Ports       []string                   `json:"ports"`
	Selectors   map[string]string          `json:"selectors"`
	IPAddress   string                     `json:"ipaddress"`
	Providers   map[string]ServiceProvider `json:"providers"`
}

// ServiceProvider is an endpoint that serves a load-balanced service.
type ServiceProvider struct {
	IPAddress   string            `json:"IPAddress"`
	ContainerID string            `json:"ContainerID"`
	Labels      map[string]string `json:"Labels"`
	Tenant      string            `json:"Tenant"`
	Network     string            `json:"Network"`
	Services    []string          `json:"Services"`
	Container   string            `json:"Container"`
	EpIDKey     string            `json:"EpIDKey"`
}
