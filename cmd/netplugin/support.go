package main

import (
	"crypto/x509"
	"path/filepath"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/bundle"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/transport"
)

// support is what people who search for a fault get of this netplugin.
func (o *options) support(log *bundle.Ring) *bundle.Support {
	s := &bundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.consulToken},
		Certificates: func() []api.Certificate { return certificates(o.certs) }, Dirs: map[string]string{"state": o.stateDir},
	}
	if filepath.IsAbs(o.flowLog) {
		s.Dirs["flow log"] = filepath.Dir(o.flowLog)
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
