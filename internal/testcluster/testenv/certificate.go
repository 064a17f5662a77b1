package testenv

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// ExpireCertificate replaces the certificate in dir by one that the authority in another
// directory made and that ended an hour ago.
func ExpireCertificate(t testing.TB, authority, dir string) {
	t.Helper()
	a, err := pki.Open(authority)
	if err != nil {
		t.Fatal(err)
	}
	was := blocks(t, filepath.Join(dir, pki.CertFile))
	cert, err := x509.ParseCertificate(was[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(blocks(t, filepath.Join(authority, "authority.pem"))[0])
	if err != nil {
		t.Fatal(err)
	}
	cert.NotBefore, cert.NotAfter = time.Now().AddDate(0, 0, -90), time.Now().Add(-time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.Bundle()[0], cert.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	was[0] = der
	var text bytes.Buffer
	for _, b := range was {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: b}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, pki.CertFile), text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func blocks(t testing.TB, path string) (out [][]byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for b, rest := pem.Decode(text); b != nil; b, rest = pem.Decode(rest) {
		out = append(out, b.Bytes)
	}
	return out
}
