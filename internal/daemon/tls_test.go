package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	stdlog "log" //nolint:depguard // http.Server takes no other one for its errors
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRefusedCertificatesAreWarnedOfSeldom: refused certificates are warned of, not more often than each 10 s; what
// else goes wrong with a connection is no warning.
func TestRefusedCertificatesAreWarnedOfSeldom(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	r := &tlsErrorLog{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	const refused = "http: TLS handshake error from 10.0.0.9:1: tls: failed to verify certificate: it has expired\n"
	for _, line := range []string{"http: TLS handshake error from 10.0.0.9:1: EOF\n", refused, refused} {
		if n, err := r.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := strings.Count(out.String(), "level=WARN"); got != 1 || !strings.Contains(out.String(), "it has expired") {
		t.Errorf("%d warnings: %s", got, &out)
	}
	now = now.Add(tlsErrorInterval)
	if _, err := r.Write([]byte(refused)); err != nil || strings.Count(out.String(), "level=WARN") != 2 {
		t.Errorf("ten seconds later: %v, %s", err, &out)
	}
}

// TestClientsOfAnotherAuthorityAreNamed: clients that trust another authority are named once they have refused the
// certificate several times over some seconds, and no longer when they have not for a minute.
func TestClientsOfAnotherAuthorityAreNamed(t *testing.T) {
	d := new(UntrustedClients)
	begin := time.Now()
	var passed atomic.Int64 // seconds
	now := func() time.Time { return begin.Add(time.Duration(passed.Load()) * time.Second) }
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = stdlog.New(&tlsErrorLog{log: slog.New(slog.DiscardHandler), now: now, distrust: d}, "", 0)
	s.StartTLS()
	defer s.Close()
	unknowing := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}}}
	refusals := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.seen[netip.MustParseAddr("127.0.0.1")].n
	}
	try := func(c *http.Client) {
		t.Helper()
		before := refusals()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.Do(req); err == nil {
			_ = r.Body.Close()
			return
		}
		deadline := time.After(10 * time.Second)
		for refusals() == before { // the server hears of it a moment later
			select {
			case <-deadline:
				t.Fatal("a refusal is not counted")
			default:
				runtime.Gosched()
			}
		}
	}
	for range 2 * untrustedTries {
		try(s.Client())
		try(unknowing)
		if err := d.err(now()); err != nil {
			t.Errorf("at once: %v", err)
		}
	}
	passed.Store(int64(untrustedSpan / time.Second))
	try(unknowing)
	if err := d.err(now()); err == nil || !strings.HasPrefix(err.Error(), "127.0.0.1 keep refusing the certificate") {
		t.Error(err)
	}
	if err := d.err(now().Add(untrustedFor)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}
