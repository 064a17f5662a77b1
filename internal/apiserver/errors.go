package apiserver

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// statusByKind maps the kinds of failure to HTTP status codes. The first match
// decides; an error of no kind is a fault of ours: 500.
var statusByKind = []struct {
	kind   error
	status int
}{
	{model.ErrUnavailable, http.StatusServiceUnavailable},
	{errCrossOrigin, http.StatusForbidden},
	{errNoRoute, http.StatusNotFound},
	{errMethod, http.StatusMethodNotAllowed},
	{errTooLarge, http.StatusRequestEntityTooLarge},
	{errMediaType, http.StatusUnsupportedMediaType},
	{model.ErrInvalid, http.StatusBadRequest},
	{model.ErrNotFound, http.StatusNotFound},
	{model.ErrExists, http.StatusConflict},
	{model.ErrInUse, http.StatusConflict},
	{model.ErrExhausted, http.StatusConflict},
	{model.ErrConflict, http.StatusConflict},
}

// Kinds of failure that only HTTP knows.
var (
	errNoRoute     = errors.New("no such route")
	errMethod      = errors.New("method not allowed")
	errTooLarge    = errors.New("body too large")
	errMediaType   = errors.New("not JSON")
	errCrossOrigin = errors.New("cross-origin request of a browser")
)

// statusOf returns the status code for an error.
func statusOf(err error) int {
	for _, k := range statusByKind {
		if errors.Is(err, k.kind) {
			return k.status
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// writeError answers with the error's sentence as text, or, for a fault of
// ours, with an id under which the log has the details.
func writeError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	status := statusOf(err)
	text := err.Error()
	switch {
	case status == http.StatusInternalServerError:
		id := rand.Text()[:10]
		log.Error("request failed", "method", r.Method, "path", r.URL.Path, "id", id, "error", err)
		text = "internal error " + id + ": see netmaster's log"
	case errors.Is(err, context.DeadlineExceeded):
		text = "the cluster store did not answer in time"
	case errors.Is(err, context.Canceled):
		text = "the request was cancelled"
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(strings.TrimRight(text, "\n") + "\n")) // the client may be gone
}
