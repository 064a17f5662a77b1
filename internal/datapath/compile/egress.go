package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Egress has the host-local NAT addresses of this host's endpoints, and the egress
// through its stack.
//
// Takes: both, as the agent chose them.
// Gives: Private; NAT addresses to endpointOutput; marks endpoints.
type Egress struct {
	self             model.HostName
	privates         map[model.EndpointKey]netip.Addr
	noRoutedNetworks bool // this host's data plane knows no routed networks: ports there have NAT addresses

	inv      *inventory
	out      *output
	dirtyEps *marks[*endpoint]
}

// SetNoRoutedNetworks says, before anything else, that this host's data plane knows no native
// networks: its endpoints there have private addresses, as on others.
func (eg *Egress) SetNoRoutedNetworks() { eg.noRoutedNetworks = true }

// SetPrivate records egress through this host's own stack, nil = none.
func (eg *Egress) SetPrivate(p *desired.HostNAT) {
	old := eg.out.HostNAT
	if p == old || p != nil && old != nil && *p == *old {
		return
	}
	eg.out.HostNAT = p
	for _, n := range eg.inv.networks {
		for e := range n.byHost[eg.self] {
			eg.dirtyEps.add(e)
		}
	}
}

// SetPrivateAddress records the private address of an endpoint of this host,
// known or not; the zero address takes it back.
func (eg *Egress) SetPrivateAddress(k model.EndpointKey, a netip.Addr) {
	if eg.privates[k] == a {
		return
	}
	if eg.privates[k] = a; !a.IsValid() {
		delete(eg.privates, k)
	}
	if n := eg.inv.networks[k.Network]; n != nil && n.eps[k.ID] != nil {
		eg.dirtyEps.add(n.eps[k.ID])
	}
}

// addressesOf are the addresses that a port shows: none without egress, or when
// egress has moved to another subnet; one for each family that the endpoint has.
func (eg *Egress) addressesOf(e *endpoint) (v4, v6 netip.Addr) {
	a := eg.privates[e.Key]
	if !eg.out.HostNAT.Contains(a) || !eg.noRoutedNetworks && e.net.rec != nil && e.net.rec.Routed {
		return
	}
	if e.IPv4.IsValid() {
		v4 = a
	}
	if e.IPv6.IsValid() {
		v6 = eg.out.HostNAT.Private6(a)
	}
	return v4, v6
}
