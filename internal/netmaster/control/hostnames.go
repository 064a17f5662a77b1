package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Hosts returns all hosts that agents have told of.
func (hv *HostView) List() []model.Host { return hv.hostRows.list("") }

// Host finds a host.
func (hv *HostView) Get(k model.HostName) (model.Host, bool) { return hv.hostRows.find(k) }

// HostNames returns the hosts that agents have told of or that endpoints live
// on, in no particular order; a name may be there twice.
func (hv *HostView) HostNames() []model.HostName {
	hv.mu.RLock()
	defer hv.mu.RUnlock()
	var out []model.HostName
	for h := range hv.hostRows.all {
		out = append(out, h)
	}
	for h := range hv.endpoints.endpointsOfHost {
		if h != "" {
			out = append(out, h)
		}
	}
	return out
}

// enterHosts enters a change of what is known of a host.
func (hv *HostView) enterHosts(ch tables.Change) {
	switch k := ch.Key.(type) {
	case model.HostName:
		hv.hostRows.enter(ch)
	case tables.HostAddressesKey:
		hv.hostAddressRows.enter(ch)
	case tables.HostDrainKey:
		hv.drainRows.enter(ch)
	case tables.HostAbsenceKey:
		hv.absenceRows.enter(ch)
	case tables.AnswererKey:
		hv.enterAnnouncer(k, value[tables.Answerer](ch))
	case tables.AnsweredKey:
		hv.enterAnswered(k, value[tables.Answered](ch))
	}
}
