package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// SetPrivate records the way out through this host's own stack, nil = none.
func (c *Compiler) SetPrivate(p *desired.Private) {
	old := c.out.Private
	if p == old || p != nil && old != nil && *p == *old {
		return
	}
	c.out.Private = p
	for _, n := range c.networks {
		for e := range n.byHost[c.self] {
			c.dirtyEps.add(e)
		}
	}
}

// SetPrivateAddress records the private address of an endpoint of this host,
// known or not; the zero address takes it back.
func (c *Compiler) SetPrivateAddress(k model.EndpointKey, a netip.Addr) {
	if c.privates[k] == a {
		return
	}
	if c.privates[k] = a; !a.IsValid() {
		delete(c.privates, k)
	}
	if n := c.networks[k.Network]; n != nil && n.eps[k.ID] != nil {
		c.dirtyEps.add(n.eps[k.ID])
	}
}

// privateOf are the addresses that a port shows: none without a way out, or when
// the way out has moved to another subnet; one for each family that the endpoint has.
func (c *Compiler) privateOf(e *endpoint) (v4, v6 netip.Addr) {
	a := c.privates[e.Key]
	if !c.out.Private.Contains(a) || !c.lacksNative && e.net.rec != nil && e.net.rec.Native {
		return
	}
	if e.IPv4.IsValid() {
		v4 = a
	}
	if e.IPv6.IsValid() {
		v6 = c.out.Private.Private6(a)
	}
	return v4, v6
}
