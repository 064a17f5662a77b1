package compile

import "github.com/contiv/netplugin/v2/internal/datapath/desired"

// SpeaksBGP records whether the physical network's routers are told of the services that
// have a provider on this host. They then spread clients over such hosts, and pass over one
// that dies within a second: so who comes to this host is led to a provider here while
// there is one, and not to another host that may be the dead one.
func (c *Compiler) SpeaksBGP(yes bool) {
	if c.speaksBGP == yes {
		return
	}
	c.speaksBGP = yes
	for _, s := range c.services {
		c.changed.services.add(s)
		for e := range s.members {
			c.changed.backend(s, e)
		}
	}
}

// nearOf says how near a backend of a service is, where that is asked.
func (c *Compiler) nearOf(here bool) desired.Nearness {
	switch {
	case !c.speaksBGP:
		return desired.NearUnknown
	case here:
		return desired.NearHost
	}
	return desired.NearFar
}
