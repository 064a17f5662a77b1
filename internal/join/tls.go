package join

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"slices"

	"github.com/contiv/netplugin/v2/internal/pki"
)

// errForeign: who answered is not of the cluster that the token is of.
var errForeign = errors.New("it is of another cluster than the token")

// doorTLS is for the listener that who has no certificate may connect to: it shows
// the authority too, which a new member knows by its fingerprint. Members show their
// certificate.
func (p *peers) doorTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, err := tls.LoadX509KeyPair(filepath.Join(p.own, pki.CertFile), filepath.Join(p.own, pki.KeyFile))
			if err != nil { // being renewed: who connects tries again
				return nil, err
			}
			root := p.auth.Bundle()[0]
			cert.Certificate = append(slices.Clone(cert.Certificate), root.Raw)
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
				ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool(root),
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// pinned is for a new member's client: the server must show the authority of the
// fingerprint, and a certificate of it. Nothing is sent to anybody else.
func pinned(want Fingerprint) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the fingerprint
		VerifyConnection: func(s tls.ConnectionState) error {
			chain := s.PeerCertificates
			i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return sha256.Sum256(c.Raw) == want })
			if i < 1 {
				return errForeign
			}
			_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool(chain[i]), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err != nil {
				return errors.Join(errForeign, err)
			}
			return nil
		},
	}
}

func pool(root *x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(root)
	return p
}
