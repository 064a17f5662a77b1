package api

import (
	"context"
	"net/http"
	"net/url"
)

// ClusterService is a service of Kubernetes, which alone changes it.
type ClusterService struct {
	ServiceName string   `json:"serviceName"` // NAMESPACE/NAME
	Owner       string   `json:"owner"`       // kubernetes
	TenantName  string   `json:"tenantName"`  // of the network
	NetworkName string   `json:"networkName"` // where its pods are; it is served there by the data plane
	Addresses   []string `json:"addresses"`   // by which the cluster knows it
	Balanced    []string `json:"balancedAddresses,omitempty"`
	External    []string `json:"externalAddresses,omitempty"`
	// AnsweredBy are, of Balanced, the hosts that answer their neighbours for them.
	AnsweredBy map[string]string `json:"answeredBy,omitempty"`
	// Sources are the clients that Balanced accepts; none and OnlySources = no client.
	Sources        []string      `json:"sources,omitempty"`
	OnlySources    bool          `json:"onlySources,omitempty"`
	Ports          []ClusterPort `json:"ports"`
	Affinity       string        `json:"affinity,omitempty"`       // how long a client stays with its backend, such as 10m
	InternalPolicy string        `json:"internalPolicy,omitempty"` // local = to backends on the client's node alone
	ExternalPolicy string        `json:"externalPolicy,omitempty"` // local = to backends on the node where it arrives alone
	Near           string        `json:"near,omitempty"`           // zone or node: those there before others
	HealthPort     int           `json:"healthPort,omitempty"`
	Ready          int           `json:"ready"` // backends that take new connections
	All            int           `json:"all"`   // backends
	// Backends are there when one service is asked for.
	Backends []ClusterBackend `json:"backends,omitempty"`
}

// ClusterPort is a port of a service of Kubernetes.
type ClusterPort struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	NodePort int    `json:"nodePort,omitempty"`
}

// ClusterBackend is a backend of a service of Kubernetes.
type ClusterBackend struct {
	Address  string `json:"address"`
	Slice    string `json:"slice"`           // of which it is
	State    string `json:"state,omitempty"` // draining, unready; empty = ready
	Pod      string `json:"pod,omitempty"`   // UID
	Node     string `json:"node,omitempty"`
	Zone     string `json:"zone,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // key of the endpoint that it is; empty = none of this cluster
	Host     string `json:"host,omitempty"`     // of the endpoint
	// Ports are the ports that it listens at, port/protocol or name:port/protocol.
	Ports []string `json:"ports,omitempty"`
}

// ClusterServices returns the services of Kubernetes, by namespace and name; none where
// netmaster does not keep them.
func (c *Client) ClusterServices(ctx context.Context) ([]ClusterService, error) {
	var out []ClusterService
	err := c.Do(ctx, http.MethodGet, "/api/v1/clusterServices", nil, &out)
	return out, err
}

// ClusterService returns one service of Kubernetes with its backends.
func (c *Client) ClusterService(ctx context.Context, namespace, name string) (ClusterService, error) {
	var out ClusterService
	err := c.Do(ctx, http.MethodGet, "/api/v1/clusterServices/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), nil, &out)
	return out, err
}
