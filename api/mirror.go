package api

import (
	"context"
	"io"
	"net/http"
)

// pathMirror is where agents mirror the cluster's state from a netmaster, which relays
// the store's: POST /plugin/mirror, a stream both ways. The body is a MirrorRequest a line,
// for as long as the stream is to live; the answer is a MirrorMessage a line.
const pathMirror = "/plugin/mirror"

// MirrorRequest begins or ends a mirror on a stream.
type MirrorRequest struct {
	ID       int      `json:"id"`                 // the client's name for it, above 0
	Prefixes []string `json:"prefixes,omitempty"` // of keys
	Commits  bool     `json:"commits,omitempty"`  // also tell of commits that touched nothing under them
	Since    string   `json:"since,omitempty"`    // a place that the list is to be judged by
	End      bool     `json:"end,omitempty"`      // of the mirror with this id

	// What the client has of the mirror already, by an earlier stream: all up to At, of the
	// Store and Grade that its newest list named. It gets only what it has missed, while a
	// netmaster remembers that.
	At      int64  `json:"at,omitempty"`
	AtPlace string `json:"atPlace,omitempty"`
	Store   string `json:"store,omitempty"`
	Grade   string `json:"grade,omitempty"`
}

// MirrorMessage is what a stream tells. A mirror gets a list, in parts, of which the
// last has a revision, then a message for each commit that touched it, in order.
type MirrorMessage struct {
	ID       int         `json:"id,omitempty"`       // of the mirror; 0 = of the stream
	List     bool        `json:"list,omitempty"`     // Rows are a part of the list
	Rows     []MirrorRow `json:"rows,omitempty"`     // of the list, or what a commit has left
	Revision int64       `json:"revision,omitempty"` // of the commit, or of the list that is complete by this
	Place    string      `json:"place,omitempty"`    // in the store's journal, that the revision is of; none = it has no journal
	Older    bool        `json:"older,omitempty"`    // with a list's revision: the store's history lacks Since, it went back
	Identity *MirrorRow  `json:"identity,omitempty"` // with the latter: the store's record of itself; none = it has none
	Partial  bool        `json:"partial,omitempty"`  // likewise: kinds of rows that do not concern this host are left out
	Grade    string      `json:"grade,omitempty"`    // likewise: which rows of the prefixes it has, for MirrorRequest
	Resumed  bool        `json:"resumed,omitempty"`  // Rows are what commits up to Revision have left
	// Withheld: what lies under the prefixes does not concern this host. A list comes once
	// it does, and this again when it no longer does.
	Withheld bool `json:"withheld,omitempty"`
	// Fresh: all that was committed by a moment ago has been told. It comes at the
	// beginning, and with Alive while the netmaster hears the store.
	Fresh bool `json:"fresh,omitempty"`
	// Alive comes every one and a half seconds, with the revision up to which all mirrors
	// of the stream have been told everything.
	Alive bool `json:"alive,omitempty"`
	// End: nothing more comes, and why.
	End string `json:"end,omitempty"`
}

// MirrorRow is one key as the store has it.
type MirrorRow struct {
	Key     string `json:"k"`
	KeyData []byte `json:"kd,omitempty"` // in place of Key, where that is no text in UTF-8
	Create  int64  `json:"c,omitempty"`  // revision of its making; 0 = it is deleted
	Mod     int64  `json:"m,omitempty"`  // revision of its last change
	Text    string `json:"t,omitempty"`  // the value
	Data    []byte `json:"d,omitempty"`  // likewise, where that is no text in UTF-8
}

// Mirror opens a stream to a netmaster, which reads asks for as long as it lives; closing
// what it returns, or the end of ctx, ends it. At the end of ctx asks must end too, or
// Mirror waits for them. A body can be sent once, so only a
// netmaster that cannot be reached is passed over. A netmaster that is older refuses with
// an *Error.
func (c *Client) Mirror(ctx context.Context, asks io.Reader) (io.ReadCloser, error) {
	resp, err := c.open(ctx, http.MethodPost, pathMirror, asks)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
