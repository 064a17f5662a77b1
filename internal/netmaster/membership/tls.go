package membership

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"slices"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// enrollmentTLS is for the listener that who has no certificate may connect to: it shows
// the authority too, which a new member knows by its fingerprint. Members show their
// certificate, and hosts theirs.
func (p *peers) enrollmentTLS(clients func() *pki.Authority) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, err := tls.LoadX509KeyPair(filepath.Join(p.own, pki.CertFile), filepath.Join(p.own, pki.KeyFile))
			if err != nil { // being renewed: who connects tries again
				return nil, err
			}
			roots := p.auth.Load().Bundle()
			cert.Certificate = slices.Clone(cert.Certificate)
			known := x509.NewCertPool()
			for _, root := range roots { // one known root is enough to know this cluster
				cert.Certificate = append(cert.Certificate, root.Raw)
				known.AddCert(root)
			}
			if c := clients(); c != nil { // hosts renew their certificates by them
				for _, r := range c.Bundle() {
					known.AddCert(r)
				}
			}
			return &tls.Config{
				MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
				ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: known,
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}
