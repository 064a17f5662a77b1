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
	self        model.HostName
	privates    map[model.EndpointKey]netip.Addr
	lacksNative bool // this host's data plane knows no routed networks: ports there have NAT addresses

	inv      *inventory
	out      *output
	dirtyEps *marks[*endpoint]
}

// LackNative says, before anything else, that this host's data plane knows no native
// networks: its endpoints there have private addresses, as on others.
func (eg *Egress) LackNative() { eg.lacksNative = true }

// SetPrivate records egress through this host's own stack, nil = none.
func (eg *Egress) SetPrivate(p *desired.Private) {
	old := eg.out.Private
	if p == old || p != nil && old != nil && *p == *old {
		return
	}
	eg.out.Private = p
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

// of are the addresses that a port shows: none without egress, or when
// egress has moved to another subnet; one for each family that the endpoint has.
func (eg *Egress) of(e *endpoint) (v4, v6 netip.Addr) {
	a := eg.privates[e.Key]
	if !eg.out.Private.Contains(a) || !eg.lacksNative && e.net.rec != nil && e.net.rec.Native {
		return
	}
	if e.IPv4.IsValid() {
		v4 = a
	}
	if e.IPv6.IsValid() {
		v6 = eg.out.Private.Private6(a)
	}
	return v4, v6
}
