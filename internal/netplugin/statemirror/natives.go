package statemirror

import (
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// natives follows the subnets of native networks, at the cost of what differs.
type natives struct {
	last    desired.Map[model.NetworkID, *desired.Network]
	subnets []netip.Prefix // sorted; another one whenever it differs
	six     bool           // some are of IPv6
	cluster bool           // the network of services of Kubernetes is one
}

var clusterNetwork = model.NetworkKey{Tenant: model.DefaultTenant, Name: model.ClusterNetwork}

func (n *natives) follow(now desired.Map[model.NetworkID, *desired.Network]) {
	changed := false
	for c := range now.Diff(n.last) {
		changed = changed || c.Had && c.Old.Native || c.Has && c.New.Native
	}
	n.last = now
	if !changed {
		return
	}
	n.subnets, n.six, n.cluster = nil, false, false
	for _, x := range now.All() {
		if !x.Native {
			continue
		}
		n.cluster = n.cluster || x.Key == clusterNetwork
		for _, p := range []netip.Prefix{x.Subnet, x.Subnet6} {
			if p.IsValid() {
				n.subnets = append(n.subnets, p.Masked())
				n.six = n.six || p.Addr().Is6()
			}
		}
	}
	slices.SortFunc(n.subnets, netip.Prefix.Compare)
}
