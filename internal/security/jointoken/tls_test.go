package jointoken

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// issue returns a certificate that an authority has signed; nil = an authority of its own.
func issue(t *testing.T, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	parent, signer := c, any(key)
	if by == nil {
		c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestPinnedTrustsWhatTheAuthorityHasSigned(t *testing.T) {
	ours, foreign := issue(t, nil), issue(t, nil)
	member, stranger := issue(t, &ours), issue(t, &foreign)
	fingerprint := func(c tls.Certificate) Fingerprint { return sha256.Sum256(c.Certificate[0]) }
	for what, tc := range map[string]struct {
		shows, with tls.Certificate
		pinned      []Fingerprint
		want        bool
	}{
		"a member":                                 {member, ours, []Fingerprint{fingerprint(ours)}, true},
		"a member, by the second of two":           {member, ours, []Fingerprint{fingerprint(foreign), fingerprint(ours)}, true},
		"a member of another cluster":              {stranger, foreign, []Fingerprint{fingerprint(ours)}, false},
		"a stranger that shows our authority":      {stranger, ours, []Fingerprint{fingerprint(ours)}, false},
		"a certificate that is pinned for a chain": {member, ours, []Fingerprint{fingerprint(member)}, false},
		"nothing that is pinned":                   {member, ours, nil, false},
	} {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		chain := tls.Certificate{Certificate: [][]byte{tc.shows.Certificate[0], tc.with.Certificate[0]}, PrivateKey: tc.shows.PrivateKey}
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{chain}}
		s.StartTLS()
		conn, err := (&tls.Dialer{Config: Pinned(tc.pinned...)}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if (err == nil) != tc.want || err != nil && !errors.Is(err, ErrOtherCluster) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		s.Close()
	}
}
