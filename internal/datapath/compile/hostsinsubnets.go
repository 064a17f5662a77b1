package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A network of a tenant administrator that hosts have no route to keeps no host out: a host
// may join later whose address lies in its subnets. Its containers do not reach that host, and
// this host says so.

// hostInside returns the first of a host's addresses that lies in such a network.
func hostInside(n *model.Network, h *model.Host) (a netip.Addr, inside bool) {
	if n == nil || h == nil || n.OnHosts() {
		return a, false
	}
	for _, a := range []netip.Addr{h.Control, h.VTEP, h.IPv6} {
		if a.IsValid() && (n.Subnet.Contains(a) || n.Subnet6.Contains(a)) {
			return a, true
		}
	}
	return a, false
}

// touchInside has the networks looked at again in which a host's addresses lie, or lay.
func (hs *Hosts) touchInside(old, now *model.Host) {
	if old != nil && now != nil && old.Control == now.Control && old.VTEP == now.VTEP && old.IPv6 == now.IPv6 {
		return
	}
	for _, n := range hs.inv.networks {
		_, was := hostInside(n.rec, old)
		if _, is := hostInside(n.rec, now); was || is {
			hs.dirtyNetworks.add(n)
		}
	}
}

// hostsInside says which hosts the containers of a network do not reach.
func (hs *Hosts) hostsInside(n *model.Network) string {
	if n.OnHosts() {
		return ""
	}
	var all []string
	for _, h := range hs.rows {
		if a, inside := hostInside(n, h); inside {
			all = append(all, fmt.Sprintf("%s of host %s", a, h.Name))
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return model.NoEffectPrefix + "its containers do not reach " + strings.Join(all, ", ") + ", as its subnet contains it; choose another subnet, or move the host"
}
