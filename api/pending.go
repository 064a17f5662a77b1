package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

const pathPending = "/api/v1/pending"

// PendingRequest asks for objects to be as given until they are confirmed within a
// time, or else as they were (POST /api/v1/pending). Objects are as in an ApplyRequest:
// settings, policies, their rules, and groups and networks that are there.
type PendingRequest struct {
	Objects []json.RawMessage `json:"objects"`
	Within  string            `json:"within"` // "10s" to "1h"
}

// PendingChange is a change that waits to be confirmed (POST
// /api/v1/pending/ID/confirm) or taken back (DELETE /api/v1/pending/ID).
type PendingChange struct {
	ID      string          `json:"id"`
	Began   string          `json:"began"`   // RFC 3339, by the clock of the netmaster that was asked
	Within  int             `json:"within"`  // seconds, from then
	Left    int             `json:"left"`    // seconds; 0 = its time has gone, and it is being taken back
	Objects []PendingObject `json:"objects"` // that it changes
}

// PendingObject names an object of a PendingChange.
type PendingObject struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// PendingResponse is which change was confirmed or taken back.
type PendingResponse struct {
	ID string `json:"id"`
}

// Pending returns the changes that wait to be confirmed, oldest first.
func (c *Client) Pending(ctx context.Context) ([]PendingChange, error) {
	var out []PendingChange
	err := c.Do(ctx, http.MethodGet, pathPending, nil, &out)
	return out, err
}

// ApplyPending makes objects be as given until they are confirmed or their time has gone. An
// error about one of them is an *ApplyError.
func (c *Client) ApplyPending(ctx context.Context, req PendingRequest) (PendingChange, error) {
	var out PendingChange
	err := c.Do(ctx, http.MethodPost, pathPending, req, &out)
	if e, ok := err.(*Error); ok { //nolint:errorlint // Do returns an answer bare
		err = applyError(e)
	}
	return out, err
}

// Confirm makes a change that waits for good.
func (c *Client) Confirm(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodPost, pathPending+"/"+url.PathEscape(id)+"/confirm", struct{}{}, &PendingResponse{})
}

// Revert takes a change that waits back.
func (c *Client) Revert(ctx context.Context, id string) error {
	return c.Do(ctx, http.MethodDelete, pathPending+"/"+url.PathEscape(id), nil, &PendingResponse{})
}
