package model

import (
	"errors"
	"fmt"
)

// The kinds of failure that a use-case can meet. They are matched with
// errors.Is; one table in apiserver maps them to HTTP codes and one in cli to
// exit codes. Anything that matches none of them is a fault of the program.
var (
	// ErrInvalid: the request itself is wrong and will stay wrong.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: an object that the request names does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists: the object exists already with other contents.
	ErrExists = errors.New("exists")
	// ErrConflict: the request contradicts present state (immutable field, overlap, name clash).
	ErrConflict = errors.New("conflict")
	// ErrInUse: the object cannot go or change while others refer to it.
	ErrInUse = errors.New("in use")
	// ErrExhausted: a pool (addresses, VLANs, VNIs, identities) is used up, or a limit reached.
	ErrExhausted = errors.New("exhausted")
	// ErrForbidden: who asks may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: the store, or a peer, cannot be reached now; retrying may help.
	ErrUnavailable = errors.New("unavailable")
)

// kindError carries a kind beside a sentence for people, so that the text need
// not contain the kind's name.
type kindError struct {
	kind error
	text string
	err  error
}

func (e *kindError) Error() string { return e.text }

func (e *kindError) Unwrap() []error {
	if e.err == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.err}
}

// Errorf returns an error of the given kind whose text is the formatted
// sentence. Errors wrapped with %w stay reachable by errors.Is and errors.As.
func Errorf(kind error, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &kindError{kind: kind, text: err.Error(), err: err}
}

// FieldError reports a bad field of a request; it is always of kind ErrInvalid.
type FieldError struct {
	Field string // JSON name of the field
	Value string // what was given
	Want  string // what is allowed
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Want)
}

// Is makes every FieldError match ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// InField says of a field in an error that it lies in another one, as in
// "rules[3].priority".
func InField(outer string, err error) error {
	if f, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{Field: outer + "." + f.Field, Value: f.Value, Want: f.Want}
	}
	return fmt.Errorf("%s: %w", outer, err)
}

// InvalidField is shorthand for a FieldError. want is a phrase such as
// "must be a port between 0 and 65535".
func InvalidField(field string, value any, want string) error {
	text := fmt.Sprint(value)
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return &FieldError{Field: field, Value: text, Want: want}
}
