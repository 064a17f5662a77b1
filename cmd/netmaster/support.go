package main

import (
	"context"
	"crypto/x509"
	"net/http"
	"path/filepath"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/bundle"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// support is what people who search for a fault get of this netmaster.
func (o *options) support(log *bundle.Ring, embedded bool) *bundle.Support {
	s := &bundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.consulToken},
		Certificates: func() []api.Certificate { return certificates(o.certs) }, Dirs: map[string]string{},
	}
	if embedded {
		s.Dirs["store"] = o.dataDir
	}
	return s
}

// certificates are those of the directories that were given, and the authorities beside
// them.
func certificates(c daemon.TLS) (out []api.Certificate) {
	add := func(use string, d *transport.Directory) {
		if d == nil {
			return
		}
		leaf, authorities := d.All()
		for i, cert := range append([]*x509.Certificate{leaf}, authorities...) {
			what := use
			if i > 0 {
				what = "an authority of " + use
			}
			out = append(out, api.Certificate{Use: what + " in " + filepath.Clean(d.Path()), Subject: cert.Subject.String(), Ends: cert.NotAfter})
		}
	}
	add("its own certificate", c.Own)
	if c.Store != c.Own {
		add("its certificate for the store", c.Store)
	}
	return out
}

// askPeer asks another netmaster what it tells of itself.
func (m *member) askPeer(ctx context.Context, address string) (out api.Machine, err error) {
	client, err := api.NewClient(m.scheme+"://"+address, api.WithTimeout(readyTimeout), api.WithTLS(m.client), api.WithToken(m.token))
	if err != nil {
		return out, err
	}
	defer client.Close()
	return out, client.Do(ctx, http.MethodGet, "/api/v1/doctor/netmaster", nil, &out)
}
