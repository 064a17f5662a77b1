package api

import (
	"context"
	"net/http"
	"net/url"
)

// ServiceCounts are the connections of containers to a service, of all hosts that
// count them, since their data planes began to count or the service or the provider
// came.
type ServiceCounts struct {
	Providers []ProviderCounts `json:"providers"` // that the service has, those without connections too
	// Uncounted are the hosts whose clients are not in it, and why.
	Uncounted map[string]string `json:"uncounted,omitempty"`
}

// ProviderCounts are those to one provider.
type ProviderCounts struct {
	Endpoint  string  `json:"endpoint"` // tenant:network:id
	Container string  `json:"container,omitempty"`
	Host      string  `json:"host,omitempty"`
	Health    string  `json:"health,omitempty"` // Unhealthy, if its container's health check says so
	Draining  bool    `json:"draining,omitempty"`
	Share     float64 `json:"share"` // of new connections that the present providers get: 0 to 1
	Served    Served  `json:"served"`
}

// Served counts connections and what they carry; in is towards the client.
type Served struct {
	Connections uint64 `json:"connections"` // now
	Total       uint64 `json:"total"`       // that have begun
	PacketsIn   uint64 `json:"packetsIn"`
	BytesIn     uint64 `json:"bytesIn"`
	PacketsOut  uint64 `json:"packetsOut"`
	BytesOut    uint64 `json:"bytesOut"`
}

// Add adds other counts.
func (s *Served) Add(o Served) {
	s.Connections += o.Connections
	s.Total += o.Total
	s.PacketsIn += o.PacketsIn
	s.BytesIn += o.BytesIn
	s.PacketsOut += o.PacketsOut
	s.BytesOut += o.BytesOut
}

// ServiceCounts asks all hosts what they count of a service, by its key
// (tenant:service). It takes some seconds when a host does not answer.
func (c *Client) ServiceCounts(ctx context.Context, key string) (ServiceCounts, error) {
	var out ServiceCounts
	err := c.Do(ctx, http.MethodGet, "/api/v1/serviceLBs/"+url.PathEscape(key)+"/counts", nil, &out)
	return out, err
}
