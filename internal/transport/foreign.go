package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
)

// ForeignClient returns a client of an HTTPS server that is none of Contiv's, with a
// certificate of the authorities in a file, by the environment's proxy.
func ForeignClient(authorities string) (*http.Client, error) {
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
