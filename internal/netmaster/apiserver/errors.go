package apiserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// failures maps kinds of errors to answers. The first match decides; an error without a
// kind is a fault of ours: 500.
var failures = []struct {
	err    error
	status int
	kind   string
}{
	{model.ErrUnavailable, http.StatusServiceUnavailable, api.KindUnavailable},
	{model.ErrForbidden, http.StatusForbidden, api.KindForbidden},
	{errForbidden, http.StatusForbidden, api.KindForbidden},
	{errNoRoute, http.StatusNotFound, api.KindNoRoute},
	{errMethod, http.StatusMethodNotAllowed, api.KindMethod},
	{errTooLarge, http.StatusRequestEntityTooLarge, api.KindTooLarge},
	{errMediaType, http.StatusUnsupportedMediaType, api.KindMediaType},
	{control.ErrChanged, http.StatusPreconditionFailed, api.KindConflict},
	{model.ErrInvalid, http.StatusBadRequest, api.KindInvalid},
	{model.ErrNotFound, http.StatusNotFound, api.KindNotFound},
	{model.ErrExists, http.StatusConflict, api.KindExists},
	{model.ErrInUse, http.StatusConflict, api.KindInUse},
	{model.ErrExhausted, http.StatusConflict, api.KindExhausted},
	{model.ErrConflict, http.StatusConflict, api.KindConflict},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, api.KindUnavailable},
	{context.Canceled, http.StatusServiceUnavailable, api.KindUnavailable},
}

// Kinds of failure that only HTTP knows.
var (
	errNoRoute   = errors.New("no such route")
	errMethod    = errors.New("method not allowed")
	errTooLarge  = errors.New("body too large")
	errMediaType = errors.New("not JSON")
	errForbidden = errors.New("forbidden")
)

// failureOf returns the status code and the kind for an error.
func failureOf(err error) (status int, kind string) {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return f.status, f.kind
		}
	}
	return http.StatusInternalServerError, api.KindInternal
}

// faultsOf returns what is wrong with objects of a list, the first maxFaults of them;
// nil = it is no list.
func faultsOf(err error) []api.Fault {
	all, ok := errors.AsType[control.ChangeErrors](err)
	if one, only := errors.AsType[*control.ChangeError](err); only && !ok {
		all = control.ChangeErrors{one}
	}
	var out []api.Fault
	more := len(all) > maxFaults
	if more {
		all = all[:maxFaults]
	}
	for _, e := range all {
		_, kind := failureOf(e.Err)
		out = append(out, api.Fault{Index: e.Index, Kind: kind, Message: e.Err.Error()})
	}
	if more {
		out[maxFaults-1].Message += fmt.Sprintf("; more objects of the list are wrong, and the first %d are listed", maxFaults)
	}
	return out
}

// wantsJSON reports whether a client names JSON among what it accepts, as netctl
// and package api's client do; curl's "anything" is text for people.
func wantsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

// refuse answers with an error.
func (s *router) refuse(w http.ResponseWriter, r *http.Request, err error) {
	writeError(w, r, s.log, err, s.legacy)
}

// writeError answers with the error's sentence, as text or with its kind as
// JSON, or, for a fault of ours, with an id under which the log has the details.
func writeError(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error, legacy bool) {
	status, kind := failureOf(err)
	text := err.Error()
	faults := faultsOf(err)
	if len(faults) > 0 {
		lines := make([]string, len(faults))
		for i, f := range faults {
			lines[i] = fmt.Sprintf("objects[%d]: %s", f.Index, f.Message)
		}
		text = strings.Join(lines, "\n")
	}
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
	if legacy && r.Header.Get("Accept") == "" && status < http.StatusInternalServerError {
		status = http.StatusInternalServerError // 1.x's clients show the sentence of no other
	}
	text = strings.TrimRight(text, "\n")
	body, contentType := []byte(text), "text/plain; charset=utf-8"
	if wantsJSON(r) {
		contentType = "application/json"
		if body, err = json.Marshal(api.Error{Kind: kind, Message: text, Faults: faults}); err != nil {
			log.Error("an error could not be encoded", "error", err) // two texts cannot fail
		}
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
