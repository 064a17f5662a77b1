package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/contiv/netplugin/v2/internal/security/pki"
)

// UnmanagedClient returns a client of an HTTPS server that is none of Contiv's, with a
// certificate of the authorities in a file, by the environment's proxy.
func UnmanagedClient(authorities string) (*http.Client, error) {
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return nil, fmt.Errorf("read the authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate of an authority", authorities)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
	}}, nil
}

// Authorities is for a client without a certificate of its own, of netmasters with a
// certificate of the authorities in a text of PEM.
func Authorities(pem []byte) (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("it has no certificate of an authority")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, VerifyConnection: func(s tls.ConnectionState) error {
		if err := hasRole(s.PeerCertificates[0], []pki.Role{pki.Netmaster}); err != nil {
			return fmt.Errorf("the server is refused: %w", err)
		}
		return nil
	}}, nil
}
