package statemirror

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// Endangers says which way of this host a route to a network would lead away: to another
// machine of the cluster, a gateway or a name server; empty = none. Netmasters refuse such
// networks too, but each knows its own surroundings alone.
func (c *State) Endangers(k model.NetworkKey) string {
	var subnets []netip.Prefix
	c.mu.Lock()
	if m := c.mirrors[TenantScope(k.Tenant)]; m != nil {
		n := m.networks[k]
		subnets = append(subnets, n.Subnet, n.Subnet6)
	}
	c.mu.Unlock()
	near := hoststack.Lifelines()
	for _, a := range c.NodeAddresses() {
		near[a.Unmap()] = "a host"
	}
	if c.control != nil {
		for _, a := range c.control.WayAddresses() {
			near[a] = "a netmaster or the store"
		}
	}
	for a, what := range near {
		for _, p := range subnets {
			if p.IsValid() && p.Contains(a) {
				return fmt.Sprintf("its subnet %s holds the address %s of %s, which this host has to reach by its own routes: delete the network, and choose another subnet", p, a, what)
			}
		}
	}
	return ""
}
