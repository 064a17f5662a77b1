package compile

import (
	"github.com/contiv/netplugin/v2/internal/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// aside is why services send the providers on a host no new connections.
type aside uint8

const (
	drains      aside = 1 << iota // an operator says so
	unreachable                   // neither netmasters nor this host hear of it
)

// DrainHost records whether services send the providers on a host no new
// connections; those that live go on.
func (c *Compiler) DrainHost(name model.HostName, yes bool) { c.putAside(name, drains, yes) }

// LoseHost records whether a host is one that nobody hears of: as DrainHost, for
// another reason.
func (c *Compiler) LoseHost(name model.HostName, yes bool) { c.putAside(name, unreachable, yes) }

func (c *Compiler) putAside(name model.HostName, why aside, yes bool) {
	was := c.asides[name]
	now := was &^ why
	if yes {
		now |= why
	}
	if now == 0 {
		delete(c.asides, name)
	} else {
		c.asides[name] = now
	}
	if (was == 0) != (now == 0) {
		c.touchProviders(name)
	}
}

// touchProviders has the services be looked at again that endpoints of a host provide.
func (c *Compiler) touchProviders(name model.HostName) {
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
	if e != nil && c.asides[e.Host] != 0 && state != desired.BackendUnhealthy {
		return desired.BackendDraining
	}
	return state
}
