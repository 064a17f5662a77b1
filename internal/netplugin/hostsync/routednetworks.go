package hostsync

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routedNetworks follows the subnets of native networks, at the cost of what differs.
type routedNetworks struct {
	last    desired.Map[model.NetworkID, *desired.Network]
	subnets []netip.Prefix // sorted; another one whenever it differs
	six     bool           // some are of IPv6
}

func (n *routedNetworks) follow(now desired.Map[model.NetworkID, *desired.Network]) {
	changed := false
	for c := range now.Diff(n.last) {
		changed = changed || c.Had && c.Old.Routed || c.Has && c.New.Routed
	}
	n.last = now
	if !changed {
		return
	}
	n.subnets, n.six = nil, false
	for _, x := range now.All() {
		if !x.Routed {
			continue
		}
		for _, p := range []netip.Prefix{x.Subnet, x.Subnet6} {
			if p.IsValid() {
				n.subnets = append(n.subnets, p.Masked())
				n.six = n.six || p.Addr().Is6()
			}
		}
	}
	slices.SortFunc(n.subnets, netip.Prefix.Compare)
}
