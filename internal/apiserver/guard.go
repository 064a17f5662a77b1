package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// reached is the key of a *bool in a request's context: whether it was let in.
type reached struct{}

// admit sets a door before the routes, and counts whom it does not let in.
func (s *server) admit(door func(http.Handler) http.Handler, next http.Handler) http.Handler {
	if door == nil {
		return next
	}
	h := door(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if in, ok := r.Context().Value(reached{}).(*bool); ok {
			*in = true
		}
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in := false
		sw := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(sw, r.WithContext(context.WithValue(r.Context(), reached{}, &in)))
		if !in {
			s.requests.WithLabelValues("none", methodLabel(r.Method), strconv.Itoa(sw.status)).Inc()
		}
	})
}

// isOurName reports whether a DNS name is one of this server's: one that was configured, or
// that of a host of the cluster.
func (s *server) isOurName(name string) bool {
	if slices.ContainsFunc(s.allowed, func(h string) bool { return strings.EqualFold(strings.TrimSuffix(h, "."), name) }) {
		return true
	}
	_, known := s.control.Current().Host(model.HostName(name))
	return known
}
