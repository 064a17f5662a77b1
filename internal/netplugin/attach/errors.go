package attach

import (
	"errors"

	"github.com/contiv/netplugin/v2/internal/model"
)

// ErrUnreachable: nothing answers at netplugin's socket, or the exchange broke.
// It is of kind model.ErrUnavailable.
var ErrUnreachable = model.Errorf(model.ErrUnavailable, "netplugin does not answer")

// Failure is an error as it crosses the socket.
type Failure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// kinds pairs error kinds with their names on the wire and their HTTP status;
// the first that matches wins, so ErrDegraded stands before its kind.
var kinds = []struct {
	kind   error
	name   string
	status int
}{
	{ErrDegraded, "degraded", 503},
	{model.ErrInvalid, "invalid", 400},
	{model.ErrNotFound, "notFound", 404},
	{model.ErrExists, "exists", 409},
	{model.ErrConflict, "conflict", 409},
	{model.ErrInUse, "inUse", 409},
	{model.ErrExhausted, "exhausted", 409},
	{model.ErrUnavailable, "unavailable", 503},
}

// NewFailure turns an error into its form on the wire and its HTTP status.
func NewFailure(err error) (Failure, int) {
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return Failure{k.name, err.Error()}, k.status
		}
	}
	return Failure{"internal", err.Error()}, 500
}

// Err turns a failure back into an error of its kind.
func (f Failure) Err() error {
	for _, k := range kinds {
		if k.name == f.Kind {
			return model.Errorf(k.kind, "%s", f.Message)
		}
	}
	return errors.New(f.Message)
}
