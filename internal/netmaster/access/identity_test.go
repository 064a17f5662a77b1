package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// TestVerifiedCertificatesGiveTheirRole: over a real connection a certificate of netctl pki gives its role; an
// unverified one, or one of another authority, gives none.
func TestVerifiedCertificatesGiveTheirRole(t *testing.T) {
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
	asks := make(chan Identity, 1)
	serve := func(auth tls.ClientAuthType) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id, err := Identify(r, []Bearer{everybody})
			if err != nil {
				httpguard.RefusalOf(err).Write(w, r)
				return
			}
			asks <- id
			w.WriteHeader(http.StatusAccepted)
		}))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{issue(authority, "m"+auth.String(), pki.Netmaster)}, ClientAuth: auth, ClientCAs: roots}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	verifying, trusting := serve(tls.VerifyClientCertIfGiven), serve(tls.RequireAnyClientCert)
	ask := func(s *httptest.Server, shown []tls.Certificate, authorization string) (code int, text string, id Identity) {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: shown}}
		defer tr.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		resp, err := (&http.Client{Transport: tr}).Do(r)
		if err != nil {
			return 0, err.Error(), id
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		if resp.StatusCode == http.StatusAccepted {
			id = <-asks
		}
		return resp.StatusCode, string(b), id
	}
	for _, tc := range []struct {
		name string
		role pki.Role
		want Role
	}{
		{"anna", pki.ClusterAdmin, ClusterAdmin}, {"h1", pki.Host, Host}, {"h2", pki.Host, Host}, {"m1", pki.Netmaster, Netmaster}, {"prometheus", pki.Client, Viewer},
	} {
		pair := issue(authority, tc.name, tc.role)
		cert := []tls.Certificate{pair}
		code, text, id := ask(verifying, cert, "")
		if code != http.StatusAccepted {
			t.Errorf("%s: %d %s", tc.name, code, text)
		}
		want := Identity{Name: tc.name, How: ByCertificate, ID: pair.Leaf.SerialNumber.Text(16), Grants: []Grant{{Role: tc.want}}}
		if diff := cmp.Diff(want, id); diff != "" {
			t.Error(diff)
		}
		if code, text, _ := ask(trusting, cert, ""); code != http.StatusUnauthorized || !strings.Contains(text, "who asks is not known: show a certificate") {
			t.Errorf("%s, not verified: %d %s", tc.name, code, text)
		}
		// A token counts before the certificate, and a wrong one is not made good by it.
		if code, _, _ := ask(verifying, cert, "Bearer is-unheard of"); code != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d", tc.name, code)
		}
		if code, _, id := ask(verifying, cert, "Bearer is-viewer"); code != http.StatusAccepted || id.Name != "viewer" {
			t.Errorf("%s with a viewer's token: %d as %v", tc.name, code, id)
		}
	}
	if code, _, _ := ask(verifying, nil, ""); code != http.StatusUnauthorized {
		t.Errorf("no certificate: %d", code)
	}
	if code, text, _ := ask(verifying, []tls.Certificate{issue(foreign, "anna", pki.ClusterAdmin)}, ""); code == http.StatusAccepted {
		t.Errorf("a foreign certificate: %d %s", code, text)
	}
	if _, err := os.Stat(authority.Dir("anna")); err != nil {
		t.Error(err)
	}
}

// A certificate of the authority without a role, or without a name, gives no access; nor does
// one that has expired since the connection was made.
func TestCertificatesWithoutRoleGiveNoAccess(t *testing.T) {
	leaf := func(ou []string, cn string) *x509.Certificate {
		c := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
		c.Subject.OrganizationalUnit, c.Subject.CommonName = ou, cn
		c.SerialNumber = big.NewInt(1)
		return c
	}
	for _, c := range []*x509.Certificate{leaf(nil, "a"), leaf([]string{"tenant-admin"}, "a"), leaf([]string{"viewer"}, "a"), leaf([]string{"Host"}, "a"), leaf([]string{"host"}, "")} {
		if id, err := ofCertificate(c); err == nil || id.Grants != nil {
			t.Errorf("%v: %+v", c.Subject, id)
		}
	}
	if _, err := ofCertificate(leaf(nil, "a")); err == nil || !strings.Contains(err.Error(), "has no role: its subject needs an OU") {
		t.Errorf("a certificate without a role: %v", err)
	}
	if id, err := ofCertificate(leaf([]string{"x", "host"}, "a")); err != nil || id.Grants[0].Role != Host {
		t.Errorf("%+v, %v", id, err)
	}
	expired := leaf([]string{"host"}, "a")
	expired.NotAfter = time.Now().Add(-time.Second)
	if id, err := ofCertificate(expired); err == nil || id.Grants != nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("a connection that is older than its certificate: %+v, %v", id, err)
	}
}

func TestCredentialsAreReadFromHeaders(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/version", http.NoBody)
	r.Header["Authorization"] = []string{"Bearer is-root", "Bearer is-viewer"}
	id, err := Identify(r, []Bearer{everybody})
	if httpguard.RefusalOf(err).Status != http.StatusUnauthorized || !strings.Contains(httpguard.RefusalOf(err).Text, "one header Authorization, not 2") || id.How != "" {
		t.Errorf("two tokens: %v %v", id, err)
	}
	// Neither a token of another scheme or kind counts, nor a connection without certificates.
	for authorization, want := range map[string]string{
		"Basic is-root": "must be: Bearer TOKEN", "is-root": "must be: Bearer TOKEN", "Bearer root": "of no kind that this netmaster knows", "": "show a certificate",
	} {
		for _, state := range []*tls.ConnectionState{nil, {}, {VerifiedChains: [][]*x509.Certificate{{}}}} {
			r.Header = http.Header{}
			if authorization != "" {
				r.Header.Set("Authorization", authorization)
			}
			r.TLS = state
			if id, err := Identify(r, []Bearer{everybody}); err == nil || id.Grants != nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v %v, want %s", authorization, id, err, want)
			}
		}
	}
	r.Header.Set("Authorization", "bearer is-root")
	if id, err := Identify(r, []Bearer{everybody}); err != nil || id.Name != "root" {
		t.Errorf("a scheme in lower case: %v %v", id, err)
	}
}

// TestGrantsOfTenantRolesNameTenants: a grant names tenants where its role is one of tenants, and only there.
func TestGrantsOfTenantRolesNameTenants(t *testing.T) {
	many := strings.Split(strings.Repeat("blue,", MaxTenants)+"blue", ",")
	for _, role := range append([]Role{"", "root"}, Roles...) {
		for n, names := range map[int][]string{0: nil, 1: {"blue"}, MaxTenants: many[1:], MaxTenants + 1: many, -1: {"blue", "no:name"}} {
			want := slices.Contains(Roles, role) && (role == TenantAdmin && n > 0 && n <= MaxTenants || role != TenantAdmin && n == 0)
			err := (Grant{Role: role, Tenants: names}).Check()
			if (err == nil) != want {
				t.Errorf("role %q of %d tenants: %v", role, n, err)
			}
			if !slices.Contains(Roles, role) && !strings.Contains(err.Error(), "cluster-admin, viewer, tenant-admin, netmaster, host") {
				t.Errorf("role %q: %v names not all roles", role, err)
			}
		}
	}
}

// A shared token is a cluster admin's only while the file has it, even if it was taken before.
func TestSharedTokensAreCheckedAgain(t *testing.T) {
	s := SharedTokens(func(token string) bool { return token == "good" })
	if id, err := s.Identify(t.Context(), "good"); err != nil || !id.HasRole(ClusterAdmin) {
		t.Errorf("a token of the file: %+v, %v", id, err)
	}
	if id, err := s.Identify(t.Context(), "gone"); err == nil || id.Grants != nil {
		t.Errorf("a token that the file has no more: %+v, %v", id, err)
	}
}
