package supportbundle

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
)

// TestExpiringCertificatesAreReported: expiring certificates are reported in time, with what to do: authorities
// earlier, certificates that a daemon renews itself once the renewal is late, and those of
// an older daemon as before.
func TestExpiringCertificatesAreReported(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	itself := Renewal{Certificate: "see its log", Authority: "make another", Previous: "restart", Itself: true}
	cert := func(left time.Duration, authority bool) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, NotAfter: now.Add(left), IsCA: authority}
	}
	for _, c := range []struct {
		what   string
		how    Renewal
		left   time.Duration
		root   bool
		former bool
		want   string // a part of the report; "" = nothing is reported
		ended  bool
	}{
		{"by hand, good", Manual, 31 * day, false, false, "", false},
		{"by hand, soon", Manual, 29 * day, false, false, "own (CN=x) ends on " + now.Add(29*day).UTC().Format(time.DateOnly) + ", in 29 days: renew it with 'netctl pki renew'", false},
		{"by hand, over", Manual, -time.Second, false, false, "own (CN=x) ended on", true},
		{"itself, in time", itself, 24 * day, false, false, "", false},
		{"itself, late", itself, 22 * day, false, false, "see its log", false},
		{"an authority", Manual, 181 * day, true, false, "", false},
		{"an authority, soon", Manual, 179 * day, true, false, "netctl pki authority'", false},
		{"an authority, itself", itself, 179 * day, true, false, "make another", false},
		{"a former one", itself, 31 * day, true, true, "", false},
		{"a former one, soon", itself, 29 * day, true, true, "restart", false},
	} {
		s := &Support{Certificates: Certificates(func(yield func(string, *x509.Certificate) bool) {
			_ = (!c.former || yield("own", cert(3000*day, true))) && yield("own", cert(c.left, c.root))
		}, nil, c.how)}
		ended, soon := s.CertificateProblems(now)
		got := slices.Concat(ended, soon)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) || (len(ended) > 0) != c.ended {
			t.Errorf("%s: %q and %q, want %q", c.what, ended, soon, c.want)
		}
	}
	older := api.Certificate{Use: "own", Ends: now.Add(29 * day)}
	if text, remedy, ended := ExpiryProblem(older, now); text == "" || remedy != Manual.Certificate || ended {
		t.Errorf("of an older daemon: %q, %q, %v", text, remedy, ended)
	}
	broken := &Support{Certificates: Certificates(func(yield func(string, *x509.Certificate) bool) { yield("own", cert(60*day, false)) },
		func(string) error { return errors.New("tls.key is not there") }, Manual)}
	if ended, soon := broken.CertificateProblems(now); len(ended) > 0 || len(soon) != 1 || !strings.Contains(soon[0], "own cannot be read again") || !strings.Contains(soon[0], "tls.key is not there") {
		t.Errorf("of files that are gone: %q, %q", ended, soon)
	}
	never := &Support{Certificates: func() []api.Certificate { return []api.Certificate{{Use: "own", Error: "it is not there"}} }}
	if ended, soon := never.CertificateProblems(now); len(ended) > 0 || len(soon) != 1 {
		t.Errorf("of files that were never read: %q, %q", ended, soon)
	}
	var none *Support
	if ended, soon := none.CertificateProblems(now); len(ended)+len(soon) > 0 {
		t.Errorf("nobody tells %q and %q", ended, soon)
	}
}
