package api

import (
	"context"
	"net/http"
)

const pathVerification = "/api/v1/analysis/verification"

// Verification is how hosts compare with the store, as asked for.
type Verification struct {
	Hosts []HostVerification `json:"hosts"` // all of the cluster, by name
}

// HostVerification is how one host's state compares with the store, and its data plane with
// that state.
type HostVerification struct {
	Host        string   `json:"host"`
	Rows        int      `json:"rows"`                  // of the store, that the host follows and that were compared
	Entries     int      `json:"entries"`               // of the data plane: map entries, or flows and groups
	Revision    int64    `json:"revision"`              // of the store, of the desired state that was compared with
	Differences []string `json:"differences,omitempty"` // what differed; in the data plane it was put back
	Error       string   `json:"error,omitempty"`       // why nothing was proved
}

// IsProven reports whether every host was compared and none differed.
func (v Verification) IsProven() bool {
	for _, h := range v.Hosts {
		if h.Error != "" || len(h.Differences) > 0 {
			return false
		}
	}
	return true
}

// Verify has all hosts compare their state with the store, and their data planes with it.
func (c *Client) Verify(ctx context.Context) (v Verification, err error) {
	err = c.Do(ctx, http.MethodGet, pathVerification, nil, &v)
	return v, err
}
