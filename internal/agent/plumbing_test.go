package agent

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/attach/plumb"
	"github.com/contiv/netplugin/v2/internal/desired"
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
		{"vlan without uplink", v4, []string{"nosuch0"}, model.Network{Encap: model.EncapVLAN}, 0, 0},
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

// TestWithoutUplink: VLAN networks with containers on a host that cannot carry
// them are told of, by name and with what to do.
func TestWithoutUplink(t *testing.T) {
	pic := desired.Host{Networks: desired.Map[model.NetworkID, *desired.Network]{}.
		Set(1, &desired.Network{ID: 1, Key: model.NetworkKey{Tenant: "blue", Name: "vx"}, Encap: model.EncapVXLAN}).
		Set(2, &desired.Network{ID: 2, Key: model.NetworkKey{Tenant: "blue", Name: "vl"}, Encap: model.EncapVLAN})}
	for _, c := range []struct {
		uplinks []string
		want    string
	}{
		{nil, "--vlan-uplinks INTERFACE"},
		{[]string{"nosuch0"}, "no interface nosuch0"},
		{[]string{"nosuch0", "lo"}, ""},
	} {
		a := &Agent{cfg: Config{Uplinks: c.uplinks}}
		got := a.withoutUplink(pic)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0].Object != "uplink of network blue:vl" || !strings.Contains(got[0].Text, c.want)) {
			t.Errorf("with uplinks %v: %v, want %q", c.uplinks, got, c.want)
		}
	}
}
