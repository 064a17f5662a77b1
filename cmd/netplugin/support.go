package main

import (
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/bundle"
	"github.com/contiv/netplugin/v2/internal/daemon"
)

// support is what people who search for a fault get of this netplugin.
func (o *options) support(log *bundle.Ring) *bundle.Support {
	s := &bundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.consulToken},
		Certificates: bundle.Certificates(o.certs.Certificates()), Dirs: map[string]string{"state": o.stateDir},
	}
	if filepath.IsAbs(o.flowLog) {
		s.Dirs["flow log"] = filepath.Dir(o.flowLog)
	}
	return s
}
