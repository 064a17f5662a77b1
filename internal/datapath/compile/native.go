package compile

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// LackNative says, before anything else, that this host's data plane knows no native
// networks: its endpoints there have private addresses, as on others.
func (c *Compiler) LackNative() { c.lacksNative = true }

// LackForeign says, before anything else, that it leads to no backends of services that
// are no endpoints: services with such ones are in no picture of it.
func (c *Compiler) LackForeign() { c.lacksForeign = true }

// countNative follows how many native networks a tenant has: every host has them.
func (c *Compiler) countNative(n *network, old, now *model.Network) {
	was, is := old != nil && old.Native, now != nil && now.Native
	switch {
	case was && !is:
		c.countEverywhere(n.tenant, -1)
	case is && !was:
		c.countEverywhere(n.tenant, 1)
	}
}

// addressesOf are a host's own addresses, by which its stack speaks to others.
func addressesOf(h *model.Host) []netip.Addr {
	if h == nil || !h.VTEP.IsValid() {
		return nil
	}
	return slices.DeleteFunc([]netip.Addr{h.VTEP, h.Control, h.IPv6}, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })
}

// touchNode has it looked at whose a host's own addresses are.
func (c *Compiler) touchNode(name model.HostName, old, now *model.Host) {
	for _, a := range addressesOf(old) {
		removeFrom(c.nodes, a, name)
		c.dirtyNodes.add(a)
	}
	for _, a := range addressesOf(now) {
		addTo(c.nodes, a, name)
		c.dirtyNodes.add(a)
	}
}

// compileNodes writes the addresses of the cluster's machines. Of several that say that
// they have one, this host is believed, or else the first by name.
func (c *Compiler) compileNodes() {
	for a := range c.dirtyNodes {
		var first model.HostName
		for name := range c.nodes[a] {
			if name == c.self {
				first = name
				break
			}
			if first == "" || name < first {
				first = name
			}
		}
		if h := c.hosts[first]; h != nil {
			c.out.Nodes = c.out.Nodes.Set(a, h.VTEP)
		} else {
			c.out.Nodes = c.out.Nodes.Delete(a)
		}
	}
	reset(&c.dirtyNodes)
}
