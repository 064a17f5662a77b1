package api

import (
	"context"
	"net/http"
	"net/url"
)

// ReachabilityRequest asks which connections one side may open to the other (GET
// /api/v1/analysis/reachability). Each side is an endpoint, by its key, id, container or name, or
// pod:NAMESPACE/NAME, group:NAME, network:NAME, namespace:NAME, service:NAME, host:NAME,
// tenant:NAME, KEY=VALUE of labels (several separated by commas), an address, a range of
// addresses, internet: all addresses that are no endpoints', or any: all of both. An address is
// what the other side finds there: an endpoint, a service, a host, or a server outside.
type ReachabilityRequest struct {
	From, To string
	Port     string // PROTOCOL or PROTOCOL/PORT, such as tcp/443; empty = all
	// Tenant is whose groups, networks, services and labels are meant; empty = default. If both
	// sides are addresses, it is whose endpoints are meant; empty = each tenant's.
	Tenant string
}

// Verdicts of a Reachability.
const (
	ReachYes    = "yes"    // all that was asked is allowed
	ReachNo     = "no"     // nothing of it
	ReachPartly = "partly" // some sources, destinations or ports
)

// Reachability says which connections are allowed, by the policies in force.
type Reachability struct {
	From        string           `json:"from"` // as asked
	To          string           `json:"to"`
	Port        string           `json:"port,omitempty"`
	Revision    int64            `json:"revision"` // of the store that the answer is of
	Verdict     string           `json:"verdict"`  // yes, no or partly
	Connections []ReachableParts `json:"connections"`
	// Unconfirmed are the ids of changes that wait to be confirmed. They are in force, and part of the answer.
	Unconfirmed []string `json:"unconfirmed,omitempty"`
}

// ReachableParts are sources and destinations between which the same is allowed by the same
// rules.
type ReachableParts struct {
	From     []string `json:"from"`               // endpoints' keys, or prefixes of addresses
	To       []string `json:"to"`                 // likewise
	Families []string `json:"families"`           // IPv4, IPv6
	Service  string   `json:"service,omitempty"`  // by which the destinations are asked
	Frontend string   `json:"frontend,omitempty"` // ADDRESS:PORT of the service; 0.0.0.0 and :: = of each node
	Route    string   `json:"route"`              // network, router, shared-network, physical-network, host, local, or none
	Missing  string   `json:"missing,omitempty"`  // why there is no route
	// Opening is how clients outside get there, in an Exposure: vlan, routed-network, published-port,
	// service-address, load-balancer, external-address or node-port; with +bgp, hosts announce
	// routes as well. Empty = Route says it.
	Opening   string `json:"opening,omitempty"`
	Published string `json:"published,omitempty"` // HOST and ADDRESS:PORT of a published port by which the destinations are asked; 0.0.0.0 = each address
	// Parts are disjoint sets of ports, in ascending order. Without a route there are none.
	Parts []ReachablePart `json:"parts,omitempty"`
}

// ReachablePart is what is decided about some ports.
type ReachablePart struct {
	Ports     []string   `json:"ports"` // PROTOCOL, PROTOCOL/PORT, PROTOCOL/LO-HI, all, or "all but " and the others, separated by commas
	Allowed   bool       `json:"allowed"`
	Decisions []FlowRule `json:"decisions,omitempty"` // who decides, at each end that is an endpoint
}

// Reachability asks which connections one side may open to the other.
func (c *Client) Reachability(ctx context.Context, r ReachabilityRequest) (out Reachability, err error) {
	err = c.analyse(ctx, "reachability", map[string]string{"from": r.From, "to": r.To, "port": r.Port, "tenant": r.Tenant}, &out)
	return out, err
}

// ExposureRequest asks what clients outside, and endpoints of other tenants, may open connections
// to (GET /api/v1/analysis/exposure).
type ExposureRequest struct {
	To     string // as in a ReachabilityRequest; empty = all endpoints and services
	Port   string // likewise
	Tenant string // likewise
}

// Exposure says which connections from outside, and from other tenants, are allowed by the policies
// in force.
type Exposure struct {
	To          string           `json:"to"` // as asked
	Port        string           `json:"port,omitempty"`
	Revision    int64            `json:"revision"`    // of the store that the answer is of
	Connections []ReachableParts `json:"connections"` // what is allowed
	Unlisted    int              `json:"unlisted"`    // published ports that hosts have, but do not list
}

// Exposure asks what is open to clients outside, and to other tenants.
func (c *Client) Exposure(ctx context.Context, r ExposureRequest) (out Exposure, err error) {
	err = c.analyse(ctx, "exposure", map[string]string{"to": r.To, "port": r.Port, "tenant": r.Tenant}, &out)
	return out, err
}

// analyse asks a question; empty parameters are left out.
func (c *Client) analyse(ctx context.Context, what string, parameters map[string]string, out any) error {
	q := url.Values{}
	for name, text := range parameters {
		if text != "" {
			q.Set(name, text)
		}
	}
	return c.Do(ctx, http.MethodGet, "/api/v1/analysis/"+what+"?"+q.Encode(), nil, out)
}

// Explanation is what applies to an endpoint (GET /api/v1/analysis/endpoints/{key}).
type Explanation struct {
	Endpoint  string            `json:"endpoint"` // its key
	Name      string            `json:"name,omitempty"`
	Container string            `json:"container,omitempty"`
	Host      string            `json:"host"`
	Network   string            `json:"network"` // tenant:network
	Group     string            `json:"group,omitempty"`
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Addresses []string          `json:"addresses"`
	// In and Out are the tiers that decide about connections to it, and of it, in order. What no
	// tier decides passes. Closed: its policies are not known, and it is cut off.
	In       []ExplainedTier    `json:"in,omitempty"`
	Out      []ExplainedTier    `json:"out,omitempty"`
	Closed   bool               `json:"closed,omitempty"`
	Audited  []string           `json:"audited,omitempty"`  // policies under audit that apply: they decide nothing
	Services []ExplainedService `json:"services,omitempty"` // that have it as a backend
	Problems []string           `json:"problems,omitempty"` // parts that are not in force as they were written
}

// ExplainedTier is a stage of decision.
type ExplainedTier struct {
	Tier      string   `json:"tier"`
	Policies  []string `json:"policies,omitempty"` // whose rules it has (tenant:policy), in deciding order of their first rule
	Rules     int      `json:"rules"`
	Default   string   `json:"default"`             // allow, deny, or pass: the next tier decides
	DefaultOf []string `json:"defaultOf,omitempty"` // the policies whose default it is
}

// ExplainedService is a service with what it does with a backend.
type ExplainedService struct {
	Service string `json:"service"` // tenant:service
	State   string `json:"state"`   // active, draining, unhealthy or leaving
}

// Explain asks what applies to an endpoint, by its key, its id, its container's id or its name.
func (c *Client) Explain(ctx context.Context, key string) (out Explanation, err error) {
	err = c.Do(ctx, http.MethodGet, "/api/v1/analysis/endpoints/"+url.PathEscape(key), nil, &out)
	return out, err
}
