package observe

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net/http"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// requireCertificate keeps who comes by TLS without a certificate from all but the answer, in one
// word, whether the agent lives and whether it is ready: kubelets have no certificate. Who
// shows a viewer's token gets the metrics. Listeners that are plain, and unix sockets, are as
// they were.
func requireCertificate(all http.Handler, scrapers *scrapers, ready func(ctx context.Context, path string) bool) http.Handler {
	few := http.NewServeMux()
	few.Handle("GET /livez", all)
	for _, path := range []string{"GET /readyz", "GET /healthz"} {
		few.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if ready(r.Context(), r.URL.Path) {
				_, _ = io.WriteString(w, "ok\n") // who does not listen any more needs no answer
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "not ready\n")
		})
	}
	few.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		switch err := scrapers.authorize(r); {
		case err == nil:
			all.ServeHTTP(w, r)
		case errors.Is(err, model.ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, err.Error(), http.StatusUnauthorized)
		}
	})
	few.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, errNoToken.Error(), http.StatusUnauthorized)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.PeerCertificates) == 0 {
			few.ServeHTTP(w, r)
			return
		}
		if r.TLS != nil && r.Method != http.MethodGet && r.Method != http.MethodHead && !mayChange(r.TLS.PeerCertificates[0]) {
			http.Error(w, "this certificate may look and not change anything: its role is not cluster-admin", http.StatusForbidden)
			return
		}
		all.ServeHTTP(w, r)
	})
}

// mayChange reports whether the bearer of a certificate may change what a host has.
func mayChange(cert *x509.Certificate) bool {
	role, err := pki.RoleOf(cert)
	return err == nil && role == pki.ClusterAdmin
}

// getLive answers while the agent's own locks can be had; what /healthz tells of, no
// restart mends.
func (a *Observer) getLive(w http.ResponseWriter, _ *http.Request) {
	a.State()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}
