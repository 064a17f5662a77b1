package observe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/pki"
)

// TestCertified: who shows no certificate by TLS hears in a word whether the agent lives
// and is ready, and nothing else; who shows one, or comes plainly, is served all.
func TestCertified(t *testing.T) {
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "all of "+r.URL.Path) })
	none, shown := &tls.ConnectionState{}, &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	by := func(role pki.Role) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{OrganizationalUnit: []string{string(role)}}}}}
	}
	for _, tc := range []struct {
		method, path string
		by           *tls.ConnectionState
		ready        bool
		status       int
		body         string
	}{
		{"GET", "/livez", none, false, 200, "all of /livez"},
		{"GET", "/readyz", none, true, 200, "ok\n"},
		{"GET", "/readyz?format=json", none, false, 503, "not ready\n"},
		{"GET", "/healthz", none, true, 200, "ok\n"},
		{"POST", "/readyz", none, true, 401, "show a certificate"},
		{"GET", "/readyz/x", none, true, 401, ""},
		{"GET", "/debug/state", none, true, 401, "show a certificate"},
		{"POST", "/debug/reclaimEndpoint/x", none, true, 401, "show a certificate"},
		{"GET", "/metrics", none, true, 401, "show a certificate"},
		{"GET", "//debug/state", none, true, 401, "show a certificate"},
		{"GET", "/readyz", shown, true, 200, "all of /readyz"},
		{"GET", "/debug/state", shown, false, 200, "all of /debug/state"},
		{"POST", "/debug/reclaimEndpoint/x", shown, true, 403, "cluster-admin"},
		{"POST", "/debug/reclaimEndpoint/x", by(pki.Client), true, 403, "cluster-admin"},
		{"POST", "/debug/reclaimEndpoint/x", by(pki.Netmaster), true, 403, "cluster-admin"},
		{"POST", "/debug/reclaimEndpoint/x", by(pki.ClusterAdmin), true, 200, "all of"},
		{"POST", "/debug/reclaimEndpoint/x", nil, true, 200, "all of"},
		{"GET", "/debug/state", nil, false, 200, "all of /debug/state"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "http://x"+tc.path, nil)
		r.URL.Path, _, _ = strings.Cut(tc.path, "?")
		r.TLS = tc.by
		w := httptest.NewRecorder()
		certified(all, func(context.Context, string) bool { return tc.ready }).ServeHTTP(w, r)
		if w.Code/100 == 3 {
			continue // to the clean path, which is asked for anew
		}
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || tc.status != 200 && strings.Contains(w.Body.String(), "all of") {
			t.Errorf("%s %s by %v: %d %q", tc.method, tc.path, tc.by, w.Code, w.Body)
		}
	}
}
