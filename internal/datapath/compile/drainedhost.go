package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Drain records whether services send the providers on a host no new connections, as an
// operator decided; established ones go on.
func (hs *Hosts) Drain(name model.HostName, yes bool) { hs.setAside(hs.drained, name, yes) }

// Silent records whether services send the providers on a host no new connections, since it
// sends no heartbeat; established ones go on.
func (hs *Hosts) Silent(name model.HostName, yes bool) { hs.setAside(hs.silent, name, yes) }

// setAside has a host be in one of the sets by which spared decides, or not.
func (hs *Hosts) setAside(in set[model.HostName], name model.HostName, yes bool) {
	if _, was := in[name]; was == yes {
		return
	}
	if yes {
		in.add(name)
	} else {
		delete(in, name)
	}
	for _, n := range hs.inv.networks {
		for e := range n.byHost[name] {
			hs.dirtyProviders.add(e)
		}
	}
}

// spared is the state of a backend that would be chosen, were it not for its host.
func (hs *Hosts) spared(e *endpoint, state desired.BackendState) desired.BackendState {
	if e == nil || state == desired.BackendUnhealthy {
		return state
	}
	_, drains := hs.drained[e.Host]
	if _, silent := hs.silent[e.Host]; drains || silent {
		return desired.BackendDraining
	}
	return state
}
