package statemirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Endangers says which address that this host needs would be led away by a route to a
// network: of another machine of the cluster, a gateway or a name server; empty = none.
// Netmasters refuse such networks too, but each knows its own surroundings alone. A gateway
// to which this host sends by its interface on that very network is not led away: without
// the interface the host would lose it.
func (c *State) Endangers(k model.NetworkKey) string {
	n := c.Lookup.network(k)
	var way []netip.Addr
	if c.control != nil {
		way = c.control.ReachabilityAddresses()
	}
	needed := hoststack.Lifelines(way)
	for _, a := range c.Hosts.Addresses() {
		needed[a.Unmap()] = model.Lifeline{Name: "a host"}
	}
	for _, a := range way {
		needed[a] = model.Lifeline{Name: "a netmaster or the store"}
	}
	at, subnet := needed.In(n, func(a netip.Addr, what model.Lifeline) bool {
		return what.Kind == model.GatewayLifeline && hoststack.DeviceTo(a) == string(k.Name)
	})
	if !at.IsValid() {
		return ""
	}
	return fmt.Sprintf("its subnet %s contains the address %s of %s, which this host must reach by its own routes: delete the network, and choose another subnet", subnet, at, needed[at].Name)
}

// Surroundings returns what this host reports of the networks around it.
func (p *ControlPlane) Surroundings() *tables.Surroundings {
	s := &tables.Surroundings{Addresses: slices.SortedFunc(maps.Keys(hoststack.Lifelines(p.ReachabilityAddresses())), netip.Addr.Compare), VLANs: hoststack.VLANs()}
	s.Addresses = s.Addresses[:min(len(s.Addresses), tables.MaxSurroundings)]
	s.VLANs = s.VLANs[:min(len(s.VLANs), tables.MaxSurroundings)]
	return s
}
