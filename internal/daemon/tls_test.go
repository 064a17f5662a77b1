package daemon

import (
	"bytes"
	"log/slog"
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
