package main

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// startSecure starts a member that serves TLS alone, and asks it with the first
// administrator's token.
func startSecure(t *testing.T, shown string, m embeddedMember, more ...string) *process {
	t.Helper()
	p := start(t, nil, m.with(append([]string{"--secure"}, more...)...)...)
	var roots []byte
	p.until("has a certificate", func() (ok bool) {
		var err error
		roots, err = os.ReadFile(filepath.Join(m.dir, "join", "clients", "issued", "netmaster", "ca.crt"))
		return err == nil
	})
	trust, err := transport.Authorities(roots)
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if p.Client, err = api.NewClient("https://"+p.api, api.WithTimeout(time.Minute), api.WithTLS(trust), api.WithToken(func() string { return shown })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.ready()
	return p
}

// TestMembersTurnSecureOneByOne: two netmasters that keep the store by themselves become secure one
// after the other, in both steps, and serve the permitted clients at each. One more joins
// with --secure alone, and none joins without. Each records the changes made there,
// readable by its user only.
func TestMembersTurnSecureOneByOne(t *testing.T) {
	t.Parallel()
	ma, mb := newEmbeddedMember(t, "a"), newEmbeddedMember(t, "b")
	a := start(t, nil, ma.args...)
	a.ready()
	b := start(t, nil, mb.with("--token", a.joinToken())...)
	b.ready()
	b.until("has the authority of clients", func() bool {
		_, err := os.Stat(filepath.Join(mb.dir, "join", "clients", "authority.pem"))
		return err == nil
	})
	both := []string{"--secure", "--accept-plain"}
	a.stop()
	a = start(t, nil, ma.with(both...)...)
	a.ready() // plainly
	b.until("reaches a", func() bool { return b.names() == "a voter, b voter" })
	b.stop()
	b = start(t, nil, mb.with(both...)...)
	b.ready()
	secret, err := os.ReadFile(filepath.Join(ma.dir, adminFile))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(secret))
	if _, err := b.NewJoinToken(t.Context(), api.JoinTokenRequest{}); !isForbidden(err) {
		t.Errorf("a token that is asked for plainly: %v", err)
	}
	if all, err := b.Members(t.Context()); err != nil || !strings.Contains(strings.Join(all.Warnings, "\n"), "connections without TLS are accepted") {
		t.Errorf("the members: %+v, %v", all, err)
	}
	a.stop()
	a = startSecure(t, token, ma)
	// b asks a by TLS now, and a asks b.
	for _, p := range []*process{a, b} {
		p.until("reaches the other", func() bool { return p.names() == "a voter, b voter" })
	}
	b.stop()
	b = startSecure(t, token, mb)
	join, err := b.NewJoinToken(t.Context(), api.JoinTokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	md := newEmbeddedMember(t, "d")
	args := []string{"--join", join.Addresses[0], "--token", join.Token}
	if code, _, text := finished(t, nil, md.with(append(args, "--external-address", storetest.FreePort(t), "--agent-address", storetest.FreePort(t))...)...); code == 0 || !strings.Contains(text, "start it with --secure too") {
		t.Errorf("who joins without --secure: %d, %s", code, text)
	}
	d := startSecure(t, token, md, args...) // the token is good on
	if got := d.names(); got != "a voter, b voter, d voter" {
		t.Errorf("three members: %s", got)
	}
	for dir, p := range map[string]*process{ma.dir: a, mb.dir: b, md.dir: d} {
		tenant := filepath.Base(dir)
		if err := p.Do(t.Context(), http.MethodPost, "/api/v1/tenants/"+tenant+"/", api.Tenant{TenantName: tenant}, nil); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "audit", "audit.log")
		lines, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(lines), `"objects":[{"kind":"tenant","key":"`+tenant+`"}]`) {
			t.Errorf("the tenant %s is not recorded: %s, %v", tenant, lines, err)
		}
		for path, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
			if s, err := os.Stat(path); err != nil || s.Mode().Perm() != want {
				t.Errorf("%s: %v, %v", path, s, err)
			}
		}
		if resp, err := http.Get("http://" + p.api + "/api/v1/tenants/"); err == nil { //nolint:noctx // it is refused
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				t.Error("who asks plainly is answered")
			}
		}
	}
}

func isForbidden(err error) bool {
	e, ok := errors.AsType[*api.Error](err)
	return ok && e.Status == http.StatusForbidden && strings.Contains(e.Message, "by TLS only")
}

// TestOtherNetmastersAreAskedAsTheyServe: another netmaster is asked as it can be, while some are plain yet and some
// are secure already; who has no certificate asks as it always did.
func TestOtherNetmastersAreAskedAsTheyServe(t *testing.T) {
	st := memory.New()
	for address, s := range map[string]cluster.Service{
		"plain": {HostAddr: "10.0.0.1", Scheme: "http"}, "both": {HostAddr: "10.0.0.2", Scheme: "http", TLS: true}, "secure": {HostAddr: "10.0.0.3", Scheme: "https"},
	} {
		s.ServiceName, s.Port, s.Hostname = cluster.ServiceMaster, 9999, address
		r, err := cluster.Register(t.Context(), st, s, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	// What somebody wrote there while it was plain stays there.
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		tx.Put(store.Root+"service/netmaster/0", []byte(`{"ServiceName":"netmaster","HostAddr":"10.0.0.3","Port":9999,"Scheme":"http"}`), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	m := &member{store: st, scheme: "http", client: &tls.Config{MinVersion: tls.VersionTLS13}, log: slog.New(slog.DiscardHandler)}
	for address, want := range map[string]string{"10.0.0.1:9999": "http", "10.0.0.2:9999": "https", "10.0.0.3:9999": "https", "10.0.0.4:9999": "http"} {
		if got := m.urlOf(t.Context(), address); got != want+"://"+address {
			t.Errorf("%s is asked at %s", address, got)
		}
	}
	m.client = nil
	if got := m.urlOf(t.Context(), "10.0.0.2:9999"); got != "http://10.0.0.2:9999" {
		t.Errorf("without a certificate: %s", got)
	}
}

// TestPlainClientsStillNeedTheirToken: clients without TLS that had to show a token before still have to while the
// cluster is turned secure; and none makes tokens so.
func TestPlainClientsStillNeedTheirToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := transport.OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file        *transport.TokenFile
		shown, path string
		want        int
	}{
		{nil, "", "tenants/", http.StatusOK},
		{nil, "", "tokens", http.StatusForbidden},
		{known, "", "tenants/", http.StatusUnauthorized},
		{known, "wrong-wrong-wrong", "tenants/", http.StatusUnauthorized},
		{known, "0123456789abcdef", "tenants/", http.StatusOK},
		{known, "0123456789abcdef", "tokens", http.StatusForbidden},
	} {
		o := &options{acceptPlain: true, secure: true, token: tt.file}
		o.certs.Own = &transport.Directory{}
		g, err := o.newAPIAccess(memory.New(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/"+tt.path, strings.NewReader("{}"))
		if tt.path != "tokens" {
			r.Method = http.MethodGet
		}
		if tt.shown != "" {
			r.Header.Set("Authorization", "Bearer "+tt.shown)
		}
		got := http.StatusOK
		id, err := g.authenticate(r)
		if err != nil {
			got = httpguard.RefusalOf(err).Status
		}
		if got != tt.want || err == nil && !id.HasRole(access.ClusterAdmin) {
			t.Errorf("%s %s, token asked for: %t, shown: %q: %v as %v, want %d", r.Method, tt.path, tt.file != nil, tt.shown, err, id, tt.want)
		}
	}
}
