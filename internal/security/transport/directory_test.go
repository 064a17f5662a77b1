package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.Init(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *pki.Authority, name string, role pki.Role) *Directory {
	t.Helper()
	c, err := a.Issue(pki.Request{Name: name, Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, c.Dir)
}

func open(t *testing.T, dir string) *Directory {
	t.Helper()
	d, err := OpenDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// expire replaces a directory's certificate by the same one that ended an hour ago.
func expire(t *testing.T, d *Directory) *Directory {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(d.path, "..", "..", "authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	block, _ = pem.Decode(rest)
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	leaf := *d.Leaf()
	leaf.SerialNumber, leaf.NotBefore, leaf.NotAfter = big.NewInt(1), time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &leaf, root, leaf.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.path, pki.CertFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, d.path)
}

// serve answers each byte with the same, until the test ends.
func serve(t *testing.T, server *tls.Config) string {
	t.Helper()
	ln, err := Listen(t.Context(), "127.0.0.1:0", server, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				one := make([]byte, 1)
				if _, err := conn.Write([]byte("!")); err != nil { // handshakes
					return
				}
				for {
					if _, err := conn.Read(one); err != nil {
						return
					}
					if _, err := conn.Write(one); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// connect returns a connection that the server has taken, by its answer.
func connect(t *testing.T, address string, client *tls.Config) (*tls.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: client}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return nil, err
	}
	_, err = conn.Read(make([]byte, 1))
	return conn.(*tls.Conn), err
}

func echoes(t *testing.T, conn *tls.Conn, what string) {
	t.Helper()
	got := make([]byte, 1)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Errorf("%s: %v", what, err)
	} else if _, err := conn.Read(got); err != nil || got[0] != 'x' {
		t.Errorf("%s: %q, %v", what, got, err)
	}
}

// TestBothSidesVerifyCertificates: each end lets in who has a certificate of the authority, in force,
// with a role that belongs there and the right name; who is refused can say why.
func TestBothSidesVerifyCertificates(t *testing.T) {
	a, other := authority(t), authority(t)
	master, admin, host := issue(t, a, "master1", pki.Netmaster), issue(t, a, "anna", pki.ClusterAdmin), issue(t, a, "host1", pki.Host)
	api, inspection := serve(t, master.Config().APIServer), serve(t, host.Config().InspectionServer)
	debug, late := serve(t, master.Config().DebugServer), serve(t, expire(t, issue(t, a, "master2", pki.Netmaster)).Config().APIServer)
	foreign, plain := serve(t, issue(t, other, "master1", pki.Netmaster).Config().APIServer), serve(t, nil)
	named := admin.Client()
	named.ServerName = "master9"
	anonymous := admin.Client()
	anonymous.GetClientCertificate = nil
	stranger := issue(t, other, "anna", pki.ClusterAdmin).Client() // trusts the cluster, which does not trust it
	stranger.RootCAs = admin.Client().RootCAs
	for name, tc := range map[string]struct {
		address string
		client  *tls.Config
		err     string // "" = let in
		remedy  string
	}{
		"administrator":              {api, admin.Config().APIClient, "", ""},
		"host":                       {api, host.Config().APIClient, "", ""},
		"inspection":                 {inspection, admin.Client(), "", ""},
		"profiling":                  {debug, admin.Client(), "", ""},
		"host at another's":          {inspection, host.Client(), "bad certificate", "its role has no access"},
		"host at profiling":          {debug, host.Client(), "bad certificate", "its role has no access"},
		"host in netmaster's place":  {inspection, admin.Config().APIClient, `"host1" has the role host`, ""},
		"expired client":             {api, expire(t, issue(t, a, "old", pki.ClusterAdmin)).Client(), "expired certificate", "which has ended"},
		"expired server":             {late, admin.Client(), "expired", "its certificate has ended"},
		"client of another":          {api, stranger, "unknown certificate authority", "of another authority"},
		"server of another":          {foreign, admin.Client(), "unknown authority", "not trusted here"},
		"another name":               {api, named, "master9", "for other names"},
		"no certificate":             {api, anonymous, "certificate required", "wants a certificate"},
		"inspection without one":     {inspection, anonymous, "", ""},
		"another's at inspection":    {inspection, stranger, "unknown certificate authority", "of another authority"},
		"a server that is plain":     {plain, admin.Client(), "does not look like a TLS handshake", "does not speak TLS"},
		"TLS of before 1.3":          {api, &tls.Config{MaxVersion: tls.VersionTLS12, RootCAs: named.RootCAs}, "protocol version", ""}, //nolint:gosec // it is to be refused
		"a client without authority": {api, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}, "unknown authority", "not trusted here"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := connect(t, tc.address, tc.client)
			if tc.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				echoes(t, conn, name)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("the error is %v; want %q in it", err, tc.err)
			}
			if got := Remedy(err); !strings.Contains(got, tc.remedy) || (got == "") != (tc.remedy == "") {
				t.Errorf("the remedy of %v is %q; want %q", err, got, tc.remedy)
			}
		})
	}
	for _, tc := range []struct {
		err  error
		part string
	}{
		{master.Check([]string{"master1", "127.0.0.1"}, pki.Netmaster), ""},
		{master.Check(nil), ""},
		{master.Check([]string{"10.0.0.9"}, pki.Netmaster), "--addresses 10.0.0.9"},
		{master.Check(nil, pki.Host), "one of [host]"},
	} {
		if tc.part == "" && tc.err != nil || tc.part != "" && (tc.err == nil || !strings.Contains(tc.err.Error(), tc.part)) {
			t.Errorf("Check: %v; want %q", tc.err, tc.part)
		}
	}
}

// TestRenewedCertificatesAreUsedAtOnce: a renewed certificate is used by new connections, in both directions,
// while old ones go on; a copy that is not whole yet changes nothing; the authority is
// renewed with a client and a server that know the former one only.
func TestRenewedCertificatesAreUsedAtOnce(t *testing.T) {
	a := authority(t)
	master, admin := issue(t, a, "master1", pki.Netmaster), issue(t, a, "anna", pki.ClusterAdmin)
	var ahead atomic.Int64
	later := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	master.now, admin.now = later, later
	seen := make(chan *x509.Certificate, 1)
	server := master.Config().APIServer
	judge := server.GetConfigForClient
	server.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := judge(h)
		if err != nil {
			return nil, err
		}
		verify := c.VerifyConnection
		c.VerifyConnection = func(s tls.ConnectionState) error {
			seen <- s.PeerCertificates[0]
			return verify(s)
		}
		return c, nil
	}
	address, client := serve(t, server), admin.Config().APIClient
	var all []*tls.Conn
	// fresh makes a new connection and returns the certificates of both ends.
	fresh := func(what string) (ofServer, ofClient *x509.Certificate) {
		t.Helper()
		ahead.Add(int64(2 * time.Second))
		conn, err := connect(t, address, client)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		all = append(all, conn)
		for _, c := range all {
			echoes(t, c, what)
		}
		return conn.ConnectionState().PeerCertificates[0], <-seen
	}
	s0, c0 := fresh("at first")
	renew := func(name string) {
		t.Helper()
		if _, err := a.Renew(name, 0); err != nil {
			t.Fatal(err)
		}
	}
	renew("master1")
	renew("anna")
	s1, c1 := fresh("renewed")
	if s1.Equal(s0) || c1.Equal(c0) {
		t.Error("the former certificates are shown")
	}
	if err := errors.Join(master.Problem(), admin.Problem()); err != nil {
		t.Error(err)
	}
	key := filepath.Join(master.path, pki.KeyFile)
	whole, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, whole[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	if s, _ := fresh("half copied"); !s.Equal(s1) {
		t.Error("another certificate is shown")
	}
	if err := master.Problem(); err == nil || !strings.Contains(err.Error(), "do not match") {
		t.Errorf("the trouble is %v", err)
	}
	if _, err := OpenDirectory(master.path); err == nil {
		t.Error("a process starts with half a key")
	}
	if err := a.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	renew("anna") // the server still has the former bundle: its files are broken
	if _, c := fresh("client of the new authority"); c.CheckSignatureFrom(a.Bundle()[0]) != nil {
		t.Error("the client shows one of the former authority")
	}
	renew("master1")
	if s, _ := fresh("server of the new authority"); s.CheckSignatureFrom(a.Bundle()[0]) != nil {
		t.Error("the server shows one of the former authority")
	}
	if err := a.Retire(); err != nil {
		t.Fatal(err)
	}
	fresh("the former authority is retired") // and this client still trusts it alone
}

// TestExpiringCertificatesAreLogged: what is wrong with a certificate is logged 30 days before its end.
func TestExpiringCertificatesAreLogged(t *testing.T) {
	d := issue(t, authority(t), "host1", pki.Host)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it looks once
	for days, want := range map[int]string{1: "", 59: "", 61: "in less than 30 days; renew it", 91: "others refuse it; renew it"} {
		d.now = func() time.Time { return time.Now().AddDate(0, 0, days) }
		var out bytes.Buffer
		d.Watch(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		if got := out.String(); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("after %d days: %q; want %q", days, got, want)
		}
	}
}

// TestSecureNetmastersAreNeverAskedPlainly: addresses of netmasters are asked by TLS, and never plainly by mistake.
func TestSecureNetmastersAreNeverAskedPlainly(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "master1": "https://master1:9999", "10.0.0.1:99, fd00::1": "https://10.0.0.1:99,https://[fd00::1]:9999", "https://x": "https://x", "https://x,http://y": "error",
	} {
		got, err := Secure(in, "9999")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("Secure(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
