package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Kinds of refusals and failures. A newer server may know more.
const (
	KindInvalid      = "invalid"      // a value is not allowed: 400
	KindNotFound     = "notFound"     // an object that the request names does not exist: 404
	KindExists       = "exists"       // it exists already, with other values: 409
	KindConflict     = "conflict"     // it contradicts what exists, cannot change, or others were faster: 409
	KindInUse        = "inUse"        // something refers to it: 409
	KindExhausted    = "exhausted"    // a pool, a range or a table is full: 409
	KindUnavailable  = "unavailable"  // the cluster's store is away: 503
	KindNoRoute      = "noRoute"      // no such path: 404
	KindMethod       = "method"       // the path does not have the method: 405
	KindTooLarge     = "tooLarge"     // the body is too large: 413
	KindMediaType    = "mediaType"    // the body is not JSON, or compressed: 415
	KindForbidden    = "forbidden"    // a browser's page of another origin, or a name of another host: 403
	KindUnauthorized = "unauthorized" // no token, or none that the server accepts: 401
	KindTooMany      = "tooMany"      // too many requests from this address: 429, with Retry-After
	KindInternal     = "internal"     // a fault of the server: 500
)

// Error is an answer that is not a success. Clients that accept
// application/json get it as such; others get Message as text.
type Error struct {
	Status  int     `json:"-"`                // HTTP status code
	Kind    string  `json:"kind,omitempty"`   // "" = the server, an older one or none of ours, does not tell
	Message string  `json:"message"`          // the server's sentence, without trailing newline
	Faults  []Fault `json:"faults,omitempty"` // of an ApplyRequest
}

// Fault is what is wrong with one object of an ApplyRequest.
type Fault struct {
	Index   int    `json:"index"`
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("netmaster answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Message
}

// IsNotFound reports whether an object that the request names does not exist. A
// path that does not exist, on a server that is none of ours, is another matter.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Kind == "" { // an older server, 1.x's, or none of ours
		return e.Status == http.StatusNotFound && e.Message != "404 page not found"
	}
	return ok && e.Kind == KindNotFound
}

// KindOf returns the kind that a server tells of an error; "" when none does.
func KindOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// IsConflict reports whether err is an answer 409: in use, immutable, taken,
// exhausted or contradicting what exists.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

// IsForbidden reports whether err is an answer 403: who asks has no right to it.
func IsForbidden(err error) bool { return hasStatus(err, http.StatusForbidden) }

// IsUnavailable reports whether trying again later may help: no netmaster
// answered, or the one that did cannot reach its store.
func IsUnavailable(err error) bool {
	var u *UnreachableError
	return errors.As(err, &u) || hasStatus(err, http.StatusServiceUnavailable)
}

func hasStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// UnreachableError: none of the URLs was answered by a netmaster.
type UnreachableError struct {
	URLs []string
	Err  error // of the last one tried
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no netmaster answers at %s: %v; start netmaster there or give its URL",
		strings.Join(e.URLs, ", "), e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }
