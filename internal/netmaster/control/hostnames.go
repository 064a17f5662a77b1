package control

import (
	"cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

var (
	hostRows = newRowsPart[model.HostName, model.Host](nil, cmp.Compare[model.HostName])

	_ = register(hostRows, nil, kind{})
)

// Hosts returns all hosts that agents have told of.
func (v *View) Hosts() []model.Host { return hostRows.list(v, "") }

// Host finds a host.
func (v *View) Host(k model.HostName) (model.Host, bool) { return hostRows.find(v, k) }

// HostNames returns the hosts that agents have told of or that endpoints live
// on, in no particular order; a name may be there twice.
func (v *View) HostNames() []model.HostName {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var out []model.HostName
	for h := range hostRows.in(v).all {
		out = append(out, h)
	}
	for h := range v.endpointsOfHost {
		if h != "" {
			out = append(out, h)
		}
	}
	return out
}
