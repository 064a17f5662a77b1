package apiserver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// guard refuses what a web page could make a browser send, and what two parties
// on the way could read differently, before anything else looks at a request.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Where a request has a length and is chunked, net/http drops the length
		// (RFC 9112 section 6.1): what follows on the connection could be taken for
		// another request, so nothing follows. (Agents' streams of events end with
		// their connection anyway.)
		if len(r.TransferEncoding) > 0 && !strings.HasPrefix(r.URL.Path, "/plugin/monitor/") {
			w.Header().Set("Connection", "close")
		}
		if !s.isOurName(r.Host) {
			s.refuse(w, r, model.Errorf(errForbidden, "the name %q is not known to be this server's: a web page could have made it lead here; "+
				"ask by address, or have netmaster started with --allowed-hosts %s", clip([]byte(r.Host)), clip([]byte(hostOf(r.Host)))))
			return
		}
		next.ServeHTTP(w, r)
	})
}

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

// isOurName tells whether a Host header may be this server's: an address, a name
// without a dot (nobody outside can have one made lead here), a name of a host of
// the cluster, or one that was configured. Others may be the name of a web page
// whose owner has made it lead to this server (DNS rebinding).
func (s *server) isOurName(header string) bool {
	name := strings.ToLower(strings.TrimSuffix(hostOf(header), "."))
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if slices.ContainsFunc(s.allowed, func(h string) bool { return strings.EqualFold(strings.TrimSuffix(h, "."), name) }) {
		return true
	}
	_, known := s.control.Current().Host(model.HostName(name))
	return known
}

// hostOf is a Host header without its port and brackets.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		header = host
	}
	return strings.Trim(header, "[]")
}
