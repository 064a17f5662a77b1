package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	stdlog "log" //nolint:depguard // http.Server takes no other one for its errors
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestRefusals: refused certificates are warned of, not more often than each 10 s; what
// else goes wrong with a connection is no warning.
func TestRefusals(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	r := &refusals{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }}
	const refused = "http: TLS handshake error from 10.0.0.9:1: tls: failed to verify certificate: it has expired\n"
	for _, line := range []string{"http: TLS handshake error from 10.0.0.9:1: EOF\n", refused, refused} {
		if n, err := r.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := strings.Count(out.String(), "level=WARN"); got != 1 || !strings.Contains(out.String(), "it has expired") {
		t.Errorf("%d warnings: %s", got, &out)
	}
	now = now.Add(refusalEvery)
	if _, err := r.Write([]byte(refused)); err != nil || strings.Count(out.String(), "level=WARN") != 2 {
		t.Errorf("ten seconds later: %v, %s", err, &out)
	}
}

// TestDistrust: clients that trust another authority are named once they have refused the
// certificate several times, and no longer when they have not for a minute.
func TestDistrust(t *testing.T) {
	d := new(Distrust)
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = stdlog.New(&refusals{log: slog.New(slog.DiscardHandler), now: time.Now, distrust: d}, "", 0)
	s.StartTLS()
	defer s.Close()
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}}}
	for _, c := range []*http.Client{s.Client(), stranger} {
		for n := range distrustTries {
			if err := d.Err(); err != nil {
				t.Errorf("after %d tries: %v", n, err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := c.Do(req); err == nil {
				_ = r.Body.Close()
			}
		}
	}
	deadline := time.After(10 * time.Second)
	for d.Err() == nil { // the server hears of it a moment later
		select {
		case <-deadline:
			t.Fatal("nobody is named")
		default:
			runtime.Gosched()
		}
	}
	if err := d.Err(); !strings.HasPrefix(err.Error(), "127.0.0.1 keep refusing the certificate") {
		t.Error(err)
	}
	if err := d.err(time.Now().Add(distrustFor)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}
