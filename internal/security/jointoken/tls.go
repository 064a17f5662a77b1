package jointoken

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
)

// ErrOtherCluster: who answered is not of the cluster that the token is of.
var ErrOtherCluster = errors.New("it is of another cluster than the token")

// Pinned is for a new member's client: the server must show an authority of one of the
// fingerprints, and a certificate of it. Nothing is sent to anybody else.
func Pinned(want ...Fingerprint) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the fingerprint
		VerifyConnection: func(s tls.ConnectionState) error {
			chain := s.PeerCertificates
			i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return slices.Contains(want, sha256.Sum256(c.Raw)) })
			if i < 1 {
				return ErrOtherCluster
			}
			_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool(chain[i]), Intermediates: pool(chain[1:]...), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err != nil {
				return errors.Join(ErrOtherCluster, err)
			}
			return nil
		},
	}
}

func pool(certs ...*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}
