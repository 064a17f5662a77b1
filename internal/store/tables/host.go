package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// HostsScope is the scope of all hosts.
const HostsScope = GlobalPrefix + "hosts/"

// Hosts holds what agents tell of their hosts.
var Hosts = declare(TableSpec[model.HostName, model.Host]{
	Noun: "host", Version: 1,
	Path:  "state/global/hosts/*",
	Parse: parseHost,
	KeyOf: func(h model.Host) model.HostName { return h.Name },
	Scope: func(model.HostName) string { return HostsScope },
	Name:  hostSegment,
})

func parseHost(n []string) (model.HostName, bool) { return model.HostName(n[0]), true }

func hostSegment(k model.HostName) string { return store.Segment(string(k)) }
