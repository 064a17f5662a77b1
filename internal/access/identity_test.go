package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/access/audit"
	"github.com/contiv/netplugin/v2/internal/pki"
)

// TestCertificates: who shows a certificate of netctl pki has its role, by a real
// connection; one that nobody verified, or of another authority, has none.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	authority, err := pki.Init(filepath.Join(dir, "ours"))
	foreign, err2 := pki.Init(filepath.Join(dir, "foreign"))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	issue := func(a *pki.Authority, name string, role pki.Role) tls.Certificate {
		t.Helper()
		c, err := a.Issue(pki.Request{Name: name, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, "tls.crt"), filepath.Join(c.Dir, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	roots := x509.NewCertPool()
	for _, c := range authority.Bundle() {
		roots.AddCert(c)
	}
	d := newDoor(t, nil)
	serve := func(auth tls.ClientAuthType) *httptest.Server {
		s := httptest.NewUnstartedServer(d)
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{issue(authority, "m"+auth.String(), pki.Netmaster)}, ClientAuth: auth, ClientCAs: roots}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	verifying, trusting := serve(tls.VerifyClientCertIfGiven), serve(tls.RequireAnyClientCert)
	ask := func(s *httptest.Server, shown []tls.Certificate, path, authorization string) (int, string) {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: shown}}
		defer tr.CloseIdleConnections()
		method := http.MethodGet
		if strings.HasPrefix(path, "/plugin") {
			method = http.MethodPost
		}
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(`{"host":"h1"}`))
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		d.asks = Identity{}
		resp, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(b)
	}
	for _, tc := range []struct {
		name string
		role pki.Role
		want Role
		may  string
		not  string
	}{
		{"anna", pki.ClusterAdmin, ClusterAdmin, "/api/v1/backup", ""},
		{"h1", pki.Host, Host, "/plugin/host", "/api/v1/policys"},
		{"h2", pki.Host, Host, "/version", "/plugin/host"},
		{"m1", pki.Netmaster, Netmaster, "/plugin/hostsHeard", "/plugin/host"},
		{"prometheus", pki.Client, Viewer, "/metrics", "/api/v1/backup"},
	} {
		pair := issue(authority, tc.name, tc.role)
		cert := []tls.Certificate{pair}
		if code, text := ask(verifying, cert, tc.may, ""); code != http.StatusAccepted {
			t.Errorf("%s %s: %d %s", tc.name, tc.may, code, text)
		}
		want := Identity{Name: tc.name, How: ByCertificate, ID: pair.Leaf.SerialNumber.Text(16), Grants: []Grant{{Role: tc.want}}}
		if diff := cmp.Diff(want, d.asks); diff != "" {
			t.Error(diff)
		}
		if tc.not != "" {
			if code, text := ask(verifying, cert, tc.not, ""); code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", tc.name, tc.not, code, text)
			}
		}
		if code, text := ask(trusting, cert, tc.may, ""); code != http.StatusUnauthorized {
			t.Errorf("%s, not verified: %d %s", tc.name, code, text)
		}
		// A token counts before the certificate, and a wrong one is not made good by it.
		if code, _ := ask(verifying, cert, tc.may, "Bearer is-unheard of"); code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d", tc.name, code)
		}
		if code, _ := ask(verifying, cert, "/api/v1/status", "Bearer is-viewer"); code != http.StatusAccepted || d.asks.Name != "viewer" {
			t.Errorf("%s with a viewer's token: %d as %v", tc.name, code, d.asks)
		}
	}
	if code, _ := ask(verifying, nil, "/version", ""); code != http.StatusUnauthorized {
		t.Errorf("no certificate: %d", code)
	}
	if code, text := ask(verifying, []tls.Certificate{issue(foreign, "anna", pki.ClusterAdmin)}, "/version", ""); code == http.StatusAccepted {
		t.Errorf("a foreign certificate: %d %s", code, text)
	}
	if _, err := os.Stat(authority.Dir("anna")); err != nil {
		t.Error(err)
	}
}

// A certificate of the authority without a role, or without a name, is nobody's.
func TestStrangeCertificates(t *testing.T) {
	leaf := func(ou []string, cn string) *x509.Certificate {
		c := &x509.Certificate{}
		c.Subject.OrganizationalUnit, c.Subject.CommonName = ou, cn
		c.SerialNumber = bigOne
		return c
	}
	for _, c := range []*x509.Certificate{leaf(nil, "a"), leaf([]string{"tenant-admin"}, "a"), leaf([]string{"viewer"}, "a"), leaf([]string{"Host"}, "a"), leaf([]string{"host"}, "")} {
		if id, err := ofCertificate(c); err == nil || id.Grants != nil {
			t.Errorf("%v: %+v", c.Subject, id)
		}
	}
	if id, err := ofCertificate(leaf([]string{"x", "host"}, "a")); err != nil || id.Grants[0].Role != Host {
		t.Errorf("%+v, %v", id, err)
	}
}

func TestHeaders(t *testing.T) {
	d := newDoor(t, nil)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/version", http.NoBody)
	r.Header["Authorization"] = []string{"Bearer is-root", "Bearer is-viewer"}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "one header Authorization, not 2") {
		t.Errorf("two tokens: %d %s", w.Code, w.Body)
	}
}

// TestBodies: a body that has to be seen is bounded; another is not touched.
func TestBodies(t *testing.T) {
	var rec records
	d := newDoor(t, func(c *Config) { c.Audit = &rec })
	large := `{"host":"h1","x":"` + strings.Repeat("x", maxBody) + `"}`
	if through, w := d.ask("h1", "POST", "/plugin/host", large); through || w.Code != 413 || !strings.Contains(w.Body.String(), "at most 1048576 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if through, _ := d.ask("blue", "POST", "/api/v1/networkPolicys/blue:p", large); !through || d.body != large {
		t.Error("a body that nobody has to see here was touched")
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/plugin/host", io.MultiReader(strings.NewReader("{"), broken{}))
	r.Header.Set("Authorization", "Bearer is-h1")
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("a body that breaks off: %d %s", w.Code, w.Body)
	}
	if got := rec.take(); len(got) != 3 || got[0].Result != audit.Refused || got[1].Result != audit.Done || got[2].Status != 400 {
		t.Errorf("recorded %+v", got)
	}
	// Who may not ask at all is not read from.
	r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/plugin/host", untouched{t})
	r.Header.Set("Authorization", "Bearer is-viewer")
	w = httptest.NewRecorder()
	if d.ServeHTTP(w, r); w.Code != 403 {
		t.Errorf("%d", w.Code)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type untouched struct{ t *testing.T }

func (u untouched) Read([]byte) (int, error) {
	u.t.Error("a body is read before it is known that its sender may ask")
	return 0, io.EOF
}

// TestPanic: a change whose handler breaks down is recorded as failed.
func TestPanic(t *testing.T) {
	var rec records
	d := newDoor(t, func(c *Config) {
		c.Audit = &rec
		c.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic does not reach net/http")
			}
		}()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/api/v1/networks/blue:a", http.NoBody)
		r.Header.Set("Authorization", "Bearer is-root")
		d.ServeHTTP(httptest.NewRecorder(), r)
	}()
	if got := rec.take(); len(got) != 1 || got[0].Result != audit.Failed {
		t.Errorf("recorded %+v", got)
	}
}

// TestGrants: a grant names tenants where its role is one of tenants, and only there.
func TestGrants(t *testing.T) {
	many := strings.Split(strings.Repeat("blue,", MaxTenants)+"blue", ",")
	for _, role := range append([]Role{"", "root"}, Roles...) {
		for n, names := range map[int][]string{0: nil, 1: {"blue"}, MaxTenants: many[1:], MaxTenants + 1: many, -1: {"blue", "no:name"}} {
			want := slices.Contains(Roles, role) && (role == TenantAdmin && n > 0 && n <= MaxTenants || role != TenantAdmin && n == 0)
			if err := (Grant{Role: role, Tenants: names}).Check(); (err == nil) != want {
				t.Errorf("role %q of %d tenants: %v", role, n, err)
			}
		}
	}
}
