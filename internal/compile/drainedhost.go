package compile

import (
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// DrainHost records whether services send the providers on a host no new
// connections; those that live go on.
func (c *Compiler) DrainHost(name model.HostName, yes bool) {
	if _, was := c.drained[name]; was == yes {
		return
	}
	if yes {
		c.drained.add(name)
	} else {
		delete(c.drained, name)
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
	if _, drains := c.drained[e.Host]; drains {
		return desired.BackendDraining
	}
	return state
}
