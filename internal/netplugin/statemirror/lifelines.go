package statemirror

import (
	"fmt"
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// Endangers says which address that this host needs would be led away by a route to a
// network: of another machine of the cluster, a gateway or a name server; empty = none.
// Netmasters refuse such networks too, but each knows its own surroundings alone.
func (c *State) Endangers(k model.NetworkKey) string {
	n := c.Lookup.network(k)
	near := hoststack.Lifelines()
	for _, a := range c.Hosts.Addresses() {
		near[a.Unmap()] = "a host"
	}
	if c.control != nil {
		for _, a := range c.control.WayAddresses() {
			near[a] = "a netmaster or the store"
		}
	}
	for a, what := range near {
		for _, p := range []netip.Prefix{n.Subnet, n.Subnet6} {
			if p.IsValid() && p.Contains(a) {
				return fmt.Sprintf("its subnet %s contains the address %s of %s, which this host must reach by its own routes: delete the network, and choose another subnet", p, a, what)
			}
		}
	}
	return ""
}
