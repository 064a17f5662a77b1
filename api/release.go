package api

import (
	"context"
	"net/http"
)

// Release names an object that an object of Kubernetes has, to be its users' again.
type Release struct {
	Kind string `json:"kind"` // tenant, network, endpointGroup, policy, netprofile
	Key  string `json:"key"`  // TENANT:NAME; of a tenant its name
}

// Release gives to users what belongs to an object of Kubernetes.
func (c *Client) Release(ctx context.Context, r Release) error {
	return c.Do(ctx, http.MethodPost, "/api/v1/release", r, nil)
}
