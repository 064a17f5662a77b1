package api

import (
	"context"
	"net/http"
)

// OwnershipRelease names an object that an object of Kubernetes has, to be its users' again.
type OwnershipRelease struct {
	Kind string `json:"kind"` // tenant, network, endpointGroup, policy, netprofile
	Key  string `json:"key"`  // TENANT:NAME; of a tenant its name
}

// ReleaseOwnership gives to users what belongs to an object of Kubernetes.
func (c *Client) ReleaseOwnership(ctx context.Context, r OwnershipRelease) error {
	return c.Do(ctx, http.MethodPost, "/api/v1/release", r, nil)
}
