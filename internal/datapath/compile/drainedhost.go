package compile

import "github.com/contiv/netplugin/v2/internal/model"

// SetDrained records whether services send the providers on a host no new connections, as an
// operator decided; established ones go on.
func (hs *Hosts) SetDrained(name model.HostName, yes bool) { hs.setExcluded(hs.drained, name, yes) }

// SetUnhealthy records whether services send the providers on a host no new connections, since it
// sends no heartbeat; established ones go on.
func (hs *Hosts) SetUnhealthy(name model.HostName, yes bool) { hs.setExcluded(hs.unhealthy, name, yes) }

// setExcluded has a host be in one of the sets by which drains decides, or not.
func (hs *Hosts) setExcluded(in set[model.HostName], name model.HostName, yes bool) {
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

// drains reports whether a host's providers get no new connections.
func (hs *Hosts) drains(name model.HostName) bool {
	_, drains := hs.drained[name]
	_, silent := hs.unhealthy[name]
	return drains || silent
}
