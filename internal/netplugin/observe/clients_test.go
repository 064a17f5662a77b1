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
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// TestClientsWithoutCertificateHearHealthOnly: who shows no certificate by TLS hears in a word whether the agent lives
// and is ready, and nothing else; who shows one, or comes plainly, is served all.
func TestClientsWithoutCertificateHearHealthOnly(t *testing.T) {
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
		{"POST", "/readyz", none, true, 401, "present a certificate"},
		{"GET", "/readyz/x", none, true, 401, ""},
		{"GET", "/debug/state", none, true, 401, "present a certificate"},
		{"POST", "/debug/reclaimEndpoint/x", none, true, 401, "present a certificate"},
		{"GET", "/metrics", none, true, 401, "present a certificate"},
		{"GET", "//debug/state", none, true, 401, "present a certificate"},
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
		requireCertificate(all, newScrapers(nil), func(context.Context, string) bool { return tc.ready }).ServeHTTP(w, r)
		if w.Code/100 == 3 {
			continue // redirected to the clean path
		}
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || tc.status != 200 && strings.Contains(w.Body.String(), "all of") {
			t.Errorf("%s %s by %v: %d %q", tc.method, tc.path, tc.by, w.Code, w.Body)
		}
	}
}

// TestTokensReachMetricsOnly: a token gives access to the metrics, and nothing else, where a netmaster
// says that it may view; while no netmaster answers, tokens accepted within an hour do.
func TestTokensReachMetricsOnly(t *testing.T) {
	var says error
	asked, later := 0, time.Duration(0)
	s := newScrapers(func(_ context.Context, token string) error {
		asked++
		if says == nil && token != "right" {
			return model.Errorf(model.ErrInvalid, "the token is not known")
		}
		return says
	})
	s.now = func() time.Time { return time.Unix(1000, 0).Add(later) }
	all := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "all") })
	h := requireCertificate(all, s, func(context.Context, string) bool { return true })
	get := func(path, token string, status, asks int) {
		t.Helper()
		asked = 0
		r := httptest.NewRequestWithContext(t.Context(), "GET", "http://x"+path, nil)
		r.TLS = &tls.ConnectionState{}
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != status || asked != asks {
			t.Errorf("%s by %q: %d %q, netmaster was asked %d times", path, token, w.Code, w.Body, asked)
		}
	}
	get("/metrics", "wrong", 401, 1)
	get("/metrics", "right", 200, 1)
	get("/metrics", "right", 200, 0)
	get("/debug/state", "right", 401, 0)
	later = scraperCacheTime
	says = model.Errorf(model.ErrUnavailable, "away")
	get("/metrics", "right", 200, 1)
	get("/metrics", "wrong", 503, 1)
	later = scraperOutageTime
	get("/metrics", "right", 503, 1)
	says = nil
	get("/metrics", "right", 200, 1)
	later += scraperCacheTime
	says = model.Errorf(model.ErrInvalid, "the token was revoked")
	get("/metrics", "right", 401, 1)
	says = model.Errorf(model.ErrUnavailable, "away")
	get("/metrics", "right", 503, 1)
}
