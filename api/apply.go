package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// ApplyRequest asks for objects to be as given (POST /api/v1/apply), all or
// none. Each is the object that a POST to its collection would carry, with a
// field "kind" beside: the object's type as in links ("network", "endpointGroup"),
// or "endpoint" with the fields of CreateEndpointRequest. Their order does not
// matter. Unlike a POST, unknown fields are refused.
type ApplyRequest struct {
	Objects []json.RawMessage `json:"objects"`
	DryRun  bool              `json:"dryRun,omitempty"` // check and compare, change nothing
	// Set names a set of objects that are applied together, again and again. Objects
	// that such a request creates are the set's, until they are deleted.
	Set string `json:"set,omitempty"`
}

// ObjectName names an object.
type ObjectName struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
}

// What applying did to an object, or would do.
const (
	ApplyCreated   = "created"
	ApplyUpdated   = "updated"
	ApplyUnchanged = "unchanged"
)

// ApplyResult is the result for one object.
type ApplyResult struct {
	Kind     string          `json:"kind"`
	Key      string          `json:"key"`
	Action   string          `json:"action"`             // created, updated, unchanged
	Before   json.RawMessage `json:"before,omitempty"`   // in a dry run, without links; nothing for a new object
	After    json.RawMessage `json:"after,omitempty"`    // in a dry run, without links
	Warnings []string        `json:"warnings,omitempty"` // parts of the object that have no effect
}

// ApplyResponse has one result for each object, in the order of the request.
// What fits one transaction of the store is done in one. Done is less than the
// number of objects when there were too many for one request: ask again with
// the same ones to go on.
type ApplyResponse struct {
	Results []ApplyResult `json:"results"`
	Done    int           `json:"done"`
	// Left are the objects of the Set that the request does not have: a client that wants
	// the set to be as given deletes them. Others are the objects of the request that are
	// not in the Set, since they were there before.
	Left   []ObjectName `json:"left,omitempty"`
	Others []ObjectName `json:"others,omitempty"`
}

const pathApply = "/api/v1/apply"

// ApplyError is a refused ApplyRequest.
type ApplyError struct {
	Index int           // of the object
	Err   *Error        // Message is about the object
	More  []*ApplyError // others that are wrong too: all whose fields are, and in a dry run all that would be refused
}

func (e *ApplyError) Error() string { return fmt.Sprintf("objects[%d]: %v", e.Index, e.Err) }

func (e *ApplyError) Unwrap() error { return e.Err }

// Apply makes objects be as given. An error about one of them is an *ApplyError.
func (c *Client) Apply(ctx context.Context, req ApplyRequest) (ApplyResponse, error) {
	var out ApplyResponse
	err := c.Do(ctx, http.MethodPost, pathApply, req, &out)
	if e, ok := err.(*Error); ok { //nolint:errorlint // Do returns an answer bare
		err = applyError(e)
	}
	return out, err
}

func applyError(e *Error) error {
	if len(e.Faults) == 0 {
		return e
	}
	all := make([]*ApplyError, len(e.Faults))
	for i, f := range e.Faults {
		all[i] = &ApplyError{Index: f.Index, Err: &Error{Status: e.Status, Kind: f.Kind, Message: f.Message}}
	}
	all[0].More = all[1:]
	return all[0]
}
