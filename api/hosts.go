package api

import (
	"context"
	"net/http"
	"net/url"
)

// Status returns what an operator looks at first.
func (c *Client) Status(ctx context.Context) (ClusterStatus, error) {
	var out ClusterStatus
	err := c.Do(ctx, http.MethodGet, "/api/v1/status", nil, &out)
	return out, err
}

// Hosts returns all hosts, by name.
func (c *Client) Hosts(ctx context.Context) ([]Host, error) {
	var out []Host
	err := c.Do(ctx, http.MethodGet, "/api/v1/hosts", nil, &out)
	return out, err
}

// Host returns one host.
func (c *Client) Host(ctx context.Context, name string) (Host, error) {
	var out Host
	err := c.Do(ctx, http.MethodGet, "/api/v1/hosts/"+url.PathEscape(name), nil, &out)
	return out, err
}

// RemoveHost forgets a host that is away; force releases its endpoints.
func (c *Client) RemoveHost(ctx context.Context, name string, force bool) (HostRemoval, error) {
	path := "/api/v1/hosts/" + url.PathEscape(name)
	if force {
		path += "?force=true"
	}
	var out HostRemoval
	err := c.Do(ctx, http.MethodDelete, path, nil, &out)
	return out, err
}

// EvictHost gives up the endpoints of a host that is away, which stays known; force
// where it has some.
func (c *Client) EvictHost(ctx context.Context, name string, force bool) (HostRemoval, error) {
	path := "/api/v1/hosts/" + url.PathEscape(name) + "/evict"
	if force {
		path += "?force=true"
	}
	var out HostRemoval
	err := c.Do(ctx, http.MethodPost, path, struct{}{}, &out)
	return out, err
}

// DrainHost says that services send the providers on a host no new connections, or
// (not drain) that they do again.
func (c *Client) DrainHost(ctx context.Context, name string, drain bool) (Host, error) {
	method, body := http.MethodPost, any(struct{}{})
	if !drain {
		method, body = http.MethodDelete, nil
	}
	var out Host
	err := c.Do(ctx, method, "/api/v1/hosts/"+url.PathEscape(name)+"/drain", body, &out)
	return out, err
}

// SetHostAddress adds an address to a host's accepted ones, or (not add) removes it.
func (c *Client) SetHostAddress(ctx context.Context, name, address string, add bool) (Host, error) {
	method, body := http.MethodPost, any(struct{}{})
	if !add {
		method, body = http.MethodDelete, nil
	}
	var out Host
	err := c.Do(ctx, method, "/api/v1/hosts/"+url.PathEscape(name)+"/addresses/"+url.PathEscape(address), body, &out)
	return out, err
}

// EndpointFilter chooses endpoints; empty fields choose all. Network and Group
// are NAME, of any tenant, or TENANT:NAME.
type EndpointFilter struct {
	Tenant, Host, Network, Group string
}

// Endpoints returns the endpoints that a filter chooses, by key; their Key is
// set.
func (c *Client) Endpoints(ctx context.Context, f EndpointFilter) ([]EndpointOper, error) {
	q := url.Values{}
	for name, value := range map[string]string{"tenant": f.Tenant, "host": f.Host, "network": f.Network, "group": f.Group} {
		if value != "" {
			q.Set(name, value)
		}
	}
	path := "/api/v1/endpoints"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var out []EndpointOper
	err := c.Do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}
