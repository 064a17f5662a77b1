package etcd

import (
	"crypto/tls"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// TestErrorNamesTheUntrustedAuthority: the error says if a store's certificate is of an authority that is not
// trusted, or if the store does not trust ours. A missing or slow store gets another error.
func TestErrorNamesTheUntrustedAuthority(t *testing.T) {
	member := func(name string) (trust, own *tls.Config) {
		a, err := pki.Init(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		c, err := a.Issue(pki.Request{Name: name, Role: pki.Netmaster, Addresses: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		d, err := transport.OpenDirectory(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return d.Client(pki.Netmaster), d.Server(pki.Netmaster)
	}
	ours, _ := member("ours")
	_, theirs := member("theirs")
	nobody := ours.Clone() // trusts them, and is not trusted
	nobody.InsecureSkipVerify, nobody.VerifyConnection = true, nil
	serve := func(config *tls.Config) string {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer func() { _ = conn.Close() }()
					if config != nil {
						_ = tls.Server(conn, config).HandshakeContext(t.Context())
					} else {
						_, _ = conn.Read(make([]byte, 1<<10)) // and says nothing
					}
				}()
			}
		}()
		return "https://" + l.Addr().String()
	}
	for _, x := range []struct {
		what, at string
		with     *tls.Config
		want     string
	}{
		{"another authority", serve(theirs), ours, "x509: certificate signed by unknown authority: join anew)"},
		{"a server that does not trust us", serve(theirs), nobody, ": join anew)"},
		{"a server that is slow", serve(nil), ours, ""},
		{"nobody", "https://127.0.0.1:1", ours, ""},
	} {
		c, err := New(Config{Endpoints: []string{x.at}, TLS: x.with, Timeout: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), UntrustedRemedy: "join anew"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Get(t.Context(), "/x")
		if err == nil || !strings.Contains(err.Error(), "does not answer") || (x.want == "") == strings.Contains(err.Error(), "(") || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v; want %q", x.what, err, x.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
