package compile

import (
	"net/netip"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// endpointOutput writes the endpoints that placement has put into the desired state.
//
// Takes: marked endpoints with their place and policy set; hosts, routing, Egress, profiles.
// Gives: Ports, Remotes.
type endpointOutput struct {
	hosts    *Hosts
	routing  *routing
	egress   *Egress
	profiles *profiles
	out      *output
	dirtyEps *marks[*endpoint]
}

// compile writes the changed endpoints that are in the desired state.
func (eo *endpointOutput) compile() {
	for e := range eo.dirtyEps.of {
		if e.isPort {
			p := desired.Port{
				IfName: e.ifName, Endpoint: e.Key, Network: e.homeSegment().id, MAC: e.MAC,
				IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), OnHost: e.OfHost(),
			}
			p.Private, p.Private6 = eo.egress.addressesOf(e)
			if e.subject.set != nil {
				p.Policies = e.subject.set.id
			}
			pic := &p
			if old, ok := eo.out.before.Ports.Get(e.ifName); ok && *old == p {
				pic = old
			}
			eo.out.Ports = eo.out.Ports.Set(e.ifName, pic)
			eo.profiles.write(e)
		}
		if e.isRemote {
			var vtep netip.Addr
			if e.segment == nil && (e.net.rec.Encap == model.EncapVXLAN || eo.routing.joins(e.net.tenant) != 0) { // what it sends to a VXLAN network comes by its host's tunnel
				vtep = eo.hosts.vtep(e.Host)
			}
			eo.putRemote(e, e.remote, vtep)
		}
		for _, k := range e.segmentRemotes {
			eo.putRemote(e, k, netip.Addr{})
		}
	}
}

func (eo *endpointOutput) putRemote(e *endpoint, k desired.RemoteKey, vtep netip.Addr) {
	r := desired.Remote{Network: k.Network, MAC: e.MAC, IPv4: e.IPv4, IPv6: e.IPv6, Identity: e.identity(), VTEP: vtep}
	pic := &r
	if old, ok := eo.out.before.Remotes.Get(k); ok && *old == r {
		pic = old
	}
	eo.out.Remotes = eo.out.Remotes.Set(k, pic)
}
