package membership

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/security/jointoken"
)

// TestRenewedHostCertificateHasNoNewAddress: a host's certificate is renewed with the addresses
// that it has, and the one of the connection, whatever the host asks for.
func TestRenewedHostCertificateHasNoNewAddress(t *testing.T) {
	client := address(98, 23792)
	own, _, err := net.SplitHostPort(client)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Start(t.Context(), Config{
		Dir: t.TempDir(), Name: "a", Logger: slog.New(slog.DiscardHandler), Secure: []string{own},
		Client: client, Peer: address(98, 23802), EnrollmentAddress: address(98, 23782),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	asks := func(shown *x509.Certificate, q jointoken.HostRequest, from string, at ...string) *x509.Certificate {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		var r x509.CertificateRequest
		for _, a := range at {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
		}
		if q.CSR, err = x509.CreateCertificateRequest(rand.Reader, &r, key); err != nil {
			t.Fatal(err)
		}
		q.Name = "h"
		var a jointoken.HostAnswer
		if shown == nil {
			a, err = m.Enrolment.enrollHost(t.Context(), q)
		} else {
			a, err = m.Enrolment.renewHost(t.Context(), shown, q, from)
		}
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(a.Certificate)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	_, tok, err := m.Enrolment.NewHostToken(t.Context(), "h", 0)
	if err != nil {
		t.Fatal(err)
	}
	first := asks(nil, jointoken.HostRequest{ID: tok.ID, Secret: tok.Secret}, "", "10.0.0.4")
	renewed := asks(first, jointoken.HostRequest{}, "10.0.0.5:1234", "10.0.0.4", "10.0.0.5", "10.0.0.9")
	for at, want := range map[string]bool{"10.0.0.4": true, "10.0.0.5": true, "10.0.0.9": false} {
		if has := slices.ContainsFunc(renewed.IPAddresses, net.ParseIP(at).Equal); has != want {
			t.Errorf("the renewed certificate has %s: %v, want %v", at, has, want)
		}
	}
}
