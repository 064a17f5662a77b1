package netctl

import (
	"crypto/tls"
	"fmt"
	"io"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/security/pki"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// certificate is what --tls-dir names; netmasters are asked at https addresses then.
// One that ends soon is warned of.
func (g *globals) certificate(stderr io.Writer) (*tls.Config, error) {
	d, err := transport.OpenDirectory(g.tlsDir)
	if err != nil {
		return nil, err
	}
	if err := d.Problem(); err != nil && !time.Now().Before(d.Leaf().NotAfter) {
		return nil, err
	} else if err != nil {
		fmt.Fprintf(stderr, "warning: %v\n", err)
	}
	switch g.netmaster { // no flag asked for http
	case DefaultNetmaster:
		g.netmaster = "https://netmaster:" + api.DefaultPort
	case localNetmaster:
		g.netmaster = "https://127.0.0.1:" + api.DefaultPort
	}
	if g.netmaster, err = transport.Secure(g.netmaster, api.DefaultPort); err != nil {
		return nil, err
	}
	return d.Client(pki.Netmaster), nil
}
