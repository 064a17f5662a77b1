package main

import (
	"path/filepath"

	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
)

// support is what people who search for a fault get of this netplugin.
func (o *options) support(log *supportbundle.Ring) *supportbundle.Support {
	s := &supportbundle.Support{
		Version: daemon.Build().Version, Log: log, SecretFiles: []string{o.tokenFile, o.store.TokenFile},
		Certificates: supportbundle.Certificates(o.certs.Certificates(), o.certs.Unusable, o.renewal()), Dirs: map[string]string{"state": o.stateDir},
	}
	if filepath.IsAbs(o.flowLog) {
		s.Dirs["flow log"] = filepath.Dir(o.flowLog)
	}
	return s
}

// renewal is how this netplugin's certificates are renewed.
func (o *options) renewal() supportbundle.Renewal {
	if o.joining.dir == "" {
		return supportbundle.Manual
	}
	return supportbundle.Renewal{
		Certificate: "netplugin renews it from 30 days before its end on: its log says why that fails; when it has ended, 'netctl cluster token --host " + string(o.hostName) + "' and start netplugin with --join and --token",
		Authority:   "'netctl cluster members' says what to do about it",
		Previous:    "it was renewed: restart netplugin before its end if it runs since before that",
		Itself:      true,
	}
}
