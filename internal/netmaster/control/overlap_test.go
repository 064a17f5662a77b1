package control

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestRoutedVLANNetworksDoNotOverlap: in forwarding mode routing, while a host has BGP settings, no VLAN network of a
// tenant has an address in common with one of another; without BGP, in mode bridge, and of
// VXLAN, they may.
func TestRoutedVLANNetworksDoNotOverlap(t *testing.T) {
	c := base(t)
	c.addHost("host1")
	c.addHost("host2")
	c.put(model.Tenant{Name: "red"})
	vlan := func(key string, subnets ...string) model.Network {
		return with(network(key, subnets...), func(n *model.Network) { n.Encap = model.EncapVLAN })
	}
	speaks := func(h model.HostName, a string) model.Bgp {
		return model.Bgp{Host: h, RouterIP: netip.MustParsePrefix(a), AS: 1, NeighborAS: 2}
	}
	one, two := speaks("host1", "50.1.1.2/24"), speaks("host2", "50.1.1.3/24")
	refused := func(part string, o any) {
		t.Helper()
		c.refused(model.ErrConflict, part, func() error { return c.try(o) })
	}
	routing, bridge := model.Global{FwdMode: model.FwdRouting}, model.Global{FwdMode: model.FwdBridge}

	c.put(routing, vlan("blue:v", "10.70.1.0/24", "fd70:1::/64"), vlan("red:v", "10.70.0.0/22"))
	refused(`networks "blue:v" (10.70.1.0/24) and "red:v" (10.70.0.0/22)`, one)
	c.ok(c.remove(netKey("red:v")))
	c.put(one)

	refused(`subnet "10.70.0.0/22": overlaps 10.70.1.0/24 of network "blue:v"`, vlan("red:v", "10.70.0.0/22"))
	refused(`subnet "fd70:1::/64": overlaps fd70:1::/64 of network "blue:v"`, vlan("red:v", "10.71.1.0/24", "fd70:1::/64"))
	c.put(vlan("red:v", "10.71.1.0/24"), network("red:x", "10.70.1.0/25"), vlan("blue:v", "10.70.1.0/24", "fd70:1::/64"))

	c.put(bridge, vlan("red:w", "10.70.1.128/25"))
	refused(`networks "blue:v" (10.70.1.0/24) and "red:w" (10.70.1.128/25)`, routing)
	c.put(two) // in mode bridge nothing is announced
	c.ok(c.remove(tables.BgpKey{Host: "host1"}))
	c.ok(c.remove(tables.BgpKey{Host: "host2"}))
	c.put(routing, vlan("y", "10.70.1.0/25"))
}

// TestUnconfirmedModeAllowsWhatBothModesAllow: while another forwarding mode waits to be confirmed, what may not be in
// either of the two is refused, and the change can be taken back as well as confirmed.
func TestUnconfirmedModeAllowsWhatBothModesAllow(t *testing.T) {
	c := confirming(t)
	c.put(model.Tenant{Name: "red"}, model.Tenant{Name: "green"})
	vlan := func(key string) model.Network {
		return with(network(key, "10.70.1.0/24"), func(n *model.Network) { n.Encap = model.EncapVLAN })
	}
	bgp := model.Bgp{Host: "h1", RouterIP: netip.MustParsePrefix("50.1.1.2/24"), AS: 1, NeighborAS: 2}
	bridge := model.Global{FwdMode: model.FwdBridge}
	c.put(vlan("red:v"), bgp)
	refused := func(what string, o any) {
		t.Helper()
		c.refused(model.ErrConflict, what, func() error { return c.try(o) })
	}

	w, err := c.onTrial(c.Settings.ChangeGlobal(valid(routed())))
	c.ok(err)
	refused(`overlaps 10.70.1.0/24 of network "red:v"`, vlan("green:v"))
	c.ok(c.confirm(w.ID, c.Settings.ChangeGlobal(valid(routed()))))

	w, err = c.onTrial(c.Settings.ChangeGlobal(valid(bridge)))
	c.ok(err)
	refused(`overlaps 10.70.1.0/24 of network "red:v"`, vlan("green:v"))
	c.ok(err2(c.Pending.Revert(testContext(t), Admin(), w.ID)))

	c.put(bridge, vlan("green:v"))
	c.ok(c.remove(tables.BgpKey{Host: "h1"}))
	w, err = c.onTrial(c.Settings.ChangeGlobal(valid(routed())))
	c.ok(err)
	refused(`networks "green:v" (10.70.1.0/24) and "red:v" (10.70.1.0/24)`, bgp)
	c.ok(err2(c.Pending.Revert(testContext(t), Admin(), w.ID)))
	c.put(bgp)
}
