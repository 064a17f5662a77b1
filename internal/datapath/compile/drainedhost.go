package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// DrainHost records whether services send the providers on a host no new
// connections, as an operator said; those that live go on.
func (c *Compiler) DrainHost(name model.HostName, yes bool) { c.setAside(c.drained, name, yes) }

// SilentHost records whether services send the providers on a host no new
// connections, since nothing is heard of it; those that live go on.
func (c *Compiler) SilentHost(name model.HostName, yes bool) { c.setAside(c.silent, name, yes) }

// setAside has a host be in one of the sets by which spared decides, or not.
func (c *Compiler) setAside(in set[model.HostName], name model.HostName, yes bool) {
	if _, was := in[name]; was == yes {
		return
	}
	if yes {
		in.add(name)
	} else {
		delete(in, name)
	}
	for _, n := range c.networks {
		for e := range n.byHost[name] {
			for s := range e.services {
				c.changed.backend(s, e)
			}
			c.cluster.touch(e)
		}
	}
}

// spared is the state of a backend that would be chosen, were it not for its host.
func (c *Compiler) spared(e *endpoint, state desired.BackendState) desired.BackendState {
	if e == nil || state == desired.BackendUnhealthy {
		return state
	}
	_, drains := c.drained[e.Host]
	if _, silent := c.silent[e.Host]; drains || silent {
		return desired.BackendDraining
	}
	return state
}
