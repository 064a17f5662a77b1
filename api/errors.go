package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Error is an answer that is not a success.
type Error struct {
	Status  int    // HTTP status code
	Message string // the server's sentence, without trailing newline
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("netmaster answered %d %s", e.Status, http.StatusText(e.Status))
	}
	return e.Message
}

// IsNotFound tells whether err is an answer 404: an object that the request
// names does not exist.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict tells whether err is an answer 409: in use, immutable, taken,
// exhausted or contradicting what exists.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

// IsUnavailable tells whether trying again later may help: no netmaster
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
