package netctl

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestLoginSavesAcceptedTokensOnly: a token that netmaster accepts is saved for its user, and shown to that
// netmaster only; a refused one is not saved.
func TestLoginSavesAcceptedTokensOnly(t *testing.T) {
	const right = "0123456789abcdef"
	shownElsewhere := false
	mine := startNetmasterWith(t, memory.New(), func(token string) bool { return token == right })
	other := startNetmasterWith(t, memory.New(), func(string) bool { shownElsewhere = true; return true })
	home := t.TempDir()
	run := func(stdin, url string, args ...string) result {
		t.Helper()
		var out, errOut bytes.Buffer
		env := map[string]string{"HOME": home, "NETMASTER": url}
		code := Run(t.Context(), Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut, Getenv: func(n string) string { return env[n] }}, args)
		return result{code, out.String(), errOut.String()}
	}
	path := filepath.Join(home, ".netctl", "tokens.json")
	if r := run("0123456789abcdeX\n", mine, "login", "--token"); r.code != ExitFailure || !strings.Contains(r.errOut, "nothing is stored") {
		t.Errorf("a wrong token: %+v", r)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a wrong token is kept")
	}
	if r := run(right+"\n", mine, "login", "--token"); r.code != ExitOK || strings.Contains(r.out+r.errOut, right) {
		t.Fatalf("login: %+v", r)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v %v", info, err)
	}
	if r := run("", mine, "tenant", "ls", "-q"); r.code != ExitOK {
		t.Errorf("with the kept token: %+v", r)
	}
	if r := run(right+"\n", "", "login", "--token"); r.code != ExitOK || !strings.Contains(r.out, mine) {
		t.Errorf("login again, where --netmaster is the last login's: %+v", r)
	}
	for _, mode := range []os.FileMode{0o644, 0o660, 0o600} { // as ssh treats keys
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		r := run("", mine, "tenant", "ls", "-q")
		if refused := r.code == ExitUsage && strings.Contains(r.errOut, "chmod 600 "+path); refused != (mode != 0o600) {
			t.Errorf("the file has mode %o: %+v", mode, r)
		}
	}
	spelt := strings.ToUpper(strings.TrimPrefix(mine, "http://")) + "/"
	for _, url := range []string{"", spelt, mine + "," + spelt} {
		if r := run("", url, "tenant", "ls", "-q"); r.code != ExitOK {
			t.Errorf("with the kept token, at %q: %+v", url, r)
		}
	}
	if r := run("", mine+","+other, "tenant", "ls", "-q"); r.code != ExitFailure || shownElsewhere {
		t.Errorf("also elsewhere: %+v, shown: %v", r, shownElsewhere)
	}
	if r := run("", other, "logout"); r.code != ExitFailure || !strings.Contains(r.errOut, "tokens are saved for: "+mine) {
		t.Errorf("logout elsewhere: %+v", r)
	}
	if r := run("", other, "tenant", "ls", "-q"); r.code != ExitFailure || shownElsewhere {
		t.Errorf("elsewhere: %+v, shown: %v", r, shownElsewhere)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run("", "", "logout"); r.code != ExitOK || !strings.Contains(r.errOut, "have the token revoked") {
		t.Errorf("logout where others can read the token: %+v", r)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), right) {
		t.Errorf("after logout the token is still in the file: %v", err)
	}
	for _, args := range [][]string{{"tenant", "ls"}, {"logout"}} {
		if r := run("", mine, args...); r.code != ExitFailure {
			t.Errorf("%v after logout: %+v", args, r)
		}
	}
}

// TestLogoutKeepsOthersExposed: logout from one cluster does not make tokens of others good
// again that somebody may have read.
func TestLogoutKeepsOthersExposed(t *testing.T) {
	login := filepath.Join(t.TempDir(), "config.json")
	all := savedTokens{Current: "a", Clusters: map[string]savedToken{"a": {Netmasters: []string{"http://10.0.0.1:9999"}}, "b": {Netmasters: []string{"http://10.0.0.2:9999"}}}}
	if err := all.write(login); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tokensPath(login), 0o640); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	o := &loginOptions{common: common{
		terminal: terminal{out: &out, stderr: &out}, session: &session{globals: globals{netmaster: DefaultNetmaster}, loginPath: login},
	}}
	if err := runLogout(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if left, err := readTokens(login); !errors.Is(err, errExposed) || len(left.Clusters) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestHostCertificatesAreNoNetmasters: who has no certificate believes those of the authority that are a
// netmaster's, and no host's.
func TestHostCertificatesAreNoNetmasters(t *testing.T) {
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for role, good := range map[pki.Role]bool{pki.Netmaster: true, pki.Host: false} {
		c, err := a.Issue(pki.Request{Name: string(role), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		d, err := transport.OpenDirectory(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		ln, err := transport.Listen(t.Context(), "127.0.0.1:0", d.ServerOptionalCert(pki.Roles...), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		pem, err := os.ReadFile(filepath.Join(c.Dir, pki.BundleFile))
		if err != nil {
			t.Fatal(err)
		}
		client, err := transport.Authorities(pem)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Read(make([]byte, 1))
				_ = c.Close()
			}
		}()
		err = handshake(t, ln.Addr().String(), client)
		if (err == nil) != good {
			t.Errorf("%s: %v", role, err)
		}
	}
	if _, err := transport.Authorities([]byte("none")); err == nil {
		t.Error("no authority is taken for one")
	}
}

func handshake(t *testing.T, address string, client *tls.Config) error {
	t.Helper()
	config := client.Clone()
	config.ServerName = "127.0.0.1"
	c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		_ = c.Close()
	}
	return err
}

// TestTokenCreatePrintsTheSecret: a wish is sent as it is given, and -q prints the secret alone.
func TestTokenCreatePrintsTheSecret(t *testing.T) {
	var got api.TokenRequest
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method+r.URL.Path != "POST/api/v1/tokens" {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		_, _ = w.Write([]byte(`{"token":{"id":"ABCDEFGHIJ","name":"anna"},"secret":"contiv-x"}`))
	}))
	defer s.Close()
	r := netctl(t, s.URL, "token", "create", "-q", "anna", "--role", "tenant-admin", "--tenants", "blue,red", "--days", "2")
	want := api.TokenRequest{Name: "anna", Role: "tenant-admin", Tenants: []string{"blue", "red"}, Life: 2 * 86400}
	if d := cmp.Diff(want, got); d != "" || r.out != "contiv-x\n" {
		t.Errorf("%+v\n%s", r, d)
	}
}

// TestLoginTrustsTheGivenAuthority: the authority that login was given is believed from then on, at any
// URL of a netmaster that has its certificate from it, and the token is shown to no other
// server. A second login at the cluster counts instead of the first one.
func TestLoginTrustsTheGivenAuthority(t *testing.T) {
	var shown []string
	serve := func() (url, ca string) {
		t.Helper()
		a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Issue(pki.Request{Name: "master", Role: pki.Netmaster, Addresses: []string{"localhost", "127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := transport.OpenDirectory(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if token, there := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); there {
				shown = append(shown, token)
			}
			if r.URL.Path == "/api/v1/store" {
				_, _ = w.Write([]byte(`{"id":"one"}`))
				return
			}
			_, _ = w.Write([]byte(`[]`))
		}))
		_ = s.Listener.Close()
		if s.Listener, err = transport.Listen(t.Context(), "127.0.0.1:0", d.ServerOptionalCert(pki.Roles...), slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.Start()
		t.Cleanup(s.Close)
		return "https://" + s.Listener.Addr().String(), filepath.Join(c.Dir, pki.BundleFile)
	}
	url, ca := serve()
	foreign, _ := serve()
	home := t.TempDir()
	token := "0123456789abcdef"
	run := func(url string, args ...string) result {
		var out, errOut bytes.Buffer
		env := map[string]string{"HOME": home, "NETMASTER": url}
		code := Run(t.Context(), Env{Stdin: strings.NewReader(token + "\n"), Stdout: &out, Stderr: &errOut, Getenv: func(n string) string { return env[n] }}, args)
		return result{code, out.String(), errOut.String()}
	}
	if r := run(url, "login", "--token"); r.code == ExitOK || !strings.Contains(r.errOut, "login --token --ca-file") {
		t.Errorf("an unknown authority: %+v", r)
	}
	byName := strings.Replace(url, "127.0.0.1", "localhost", 1)
	for _, last := range []string{token, "fedcba9876543210"} {
		token = last
		if r := run(url, "login", "--token", "--ca-file", ca); r.code != ExitOK {
			t.Fatalf("login: %+v", r)
		}
		for _, u := range []string{url, "", byName, byName + "," + url} {
			shown = nil
			if r := run(u, "tenant", "ls"); r.code != ExitOK || len(shown) == 0 || shown[0] != last {
				t.Errorf("at %q: %+v, shown %q", u, r, shown)
			}
		}
	}
	shown = nil
	for _, args := range [][]string{{"tenant", "ls"}, {"--insecure", "tenant", "ls"}} {
		r := run(foreign, args...)
		if len(shown) > 0 || len(args) == 2 && !strings.Contains(r.errOut, "login --token --ca-file") {
			t.Errorf("%v at another cluster: %+v, shown %q", args, r, shown)
		}
	}
}
