package agent

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/attach/plumb"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestMTUOfNetworks: VXLAN takes its headers from the underlay, a VLAN network
// has the MTU of the first uplink that exists, and nobody gets more than fits.
func TestMTUOfNetworks(t *testing.T) {
	lo, err := plumb.InterfaceMTU("lo")
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	dual := netip.MustParsePrefix("fd00::/64")
	for _, c := range []struct {
		name    string
		vtep    netip.Addr
		uplinks []string
		network model.Network
		asked   int
		want    int // 0 = refused
	}{
		{"vxlan", v4, nil, model.Network{Encap: model.EncapVXLAN}, 0, 1450},
		{"vxlan over IPv6", v6, nil, model.Network{Encap: model.EncapVXLAN}, 0, 1430},
		{"vlan without uplink", v4, []string{"nosuch0"}, model.Network{Encap: model.EncapVLAN}, 0, 1500},
		{"vlan", v4, []string{"nosuch0", "lo"}, model.Network{Encap: model.EncapVLAN}, 0, min(lo, 65535)},
		{"asked", v4, nil, model.Network{Encap: model.EncapVXLAN}, 1400, 1400},
		{"asked too much", v4, nil, model.Network{Encap: model.EncapVXLAN}, 1451, 0},
		{"asked too little for IPv6", v4, nil, model.Network{Encap: model.EncapVXLAN, Subnet6: dual}, 1279, 0},
	} {
		a := &Agent{cfg: Config{UnderlayMTU: 1500, VTEP: c.vtep, Uplinks: c.uplinks}}
		if got, err := a.mtu(c.network, c.asked); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: mtu() = %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}
