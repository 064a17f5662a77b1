package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

const (
	pathStore  = "/api/v1/store"
	pathAdopt  = "/api/v1/store/adopt"
	pathBackup = "/api/v1/backup"
)

// StoreInfo is which store a netmaster serves.
type StoreInfo struct {
	ID       string   `json:"id"`                 // a UUID, made with the cluster
	Epoch    int64    `json:"epoch"`              // grows with each restore and adoption
	Since    string   `json:"since"`              // RFC 3339: when the epoch began
	Revision int64    `json:"revision"`           // of the last commit
	Replaces []string `json:"replaces,omitempty"` // stores whose hosts were told to follow this one
	// TokensEnded: the adoption ended the tokens that were made before.
	TokensEnded bool `json:"tokensEnded,omitempty"`
}

// Store returns which store the cluster has.
func (c *Client) Store(ctx context.Context) (StoreInfo, error) {
	var out StoreInfo
	err := c.Do(ctx, http.MethodGet, pathStore, nil, &out)
	return out, err
}

// AdoptStore tells hosts that keep the desired state of another store, or of a later
// state of this one, to follow this one. Tokens that were made before end, unless
// keepTokens.
func (c *Client) AdoptStore(ctx context.Context, keepTokens bool) (StoreInfo, error) {
	path := pathAdopt
	if keepTokens {
		path += "?keepTokens=true"
	}
	var out StoreInfo
	err := c.Do(ctx, http.MethodPost, path, struct{}{}, &out)
	return out, err
}

// Backup writes a backup of the store to w and returns its size in bytes; ctx
// bounds it.
func (c *Client) Backup(ctx context.Context, w io.Writer) (int64, error) {
	resp, err := c.open(ctx, http.MethodGet, pathBackup, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(w, resp.Body)
	if err != nil {
		return n, fmt.Errorf("receive the backup: %w", err)
	}
	return n, nil
}
