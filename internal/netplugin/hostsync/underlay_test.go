package hostsync

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach/vethpair"
)

// TestNetworksGetTheMTUOfTheirLink: VXLAN headers are subtracted from the underlay's MTU, a VLAN network
// has the MTU of the first uplink that exists, and no network gets more than fits.
func TestNetworksGetTheMTUOfTheirLink(t *testing.T) {
	lo, err := vethpair.InterfaceMTU("lo")
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
		u := &Underlay{MTU: 1500, VTEP: c.vtep, Uplinks: c.uplinks}
		if got, err := u.Of(c.network, c.asked); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: Of() = %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

// TestVLANNetworksWithoutUplinkAreReported: VLAN networks with containers on a host that cannot carry them are
// reported by name, with a remedy.
func TestVLANNetworksWithoutUplinkAreReported(t *testing.T) {
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
		u := &Underlay{Uplinks: c.uplinks}
		got := u.Problems(pic)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || got[0].Object != "uplink of network blue:vl" || !strings.Contains(got[0].Text, c.want)) {
			t.Errorf("with uplinks %v: %v, want %q", c.uplinks, got, c.want)
		}
	}
}

// TestLostTunnelAddressIsReported: an interface that has had the tunnel's address and is down, or has lost
// it, is reported by name; if none has had it nothing is reported.
func TestLostTunnelAddressIsReported(t *testing.T) {
	vtep := netip.MustParseAddr("192.0.2.77")
	link, cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "under7"}, PeerName: "cable7"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cable7"}}
	if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(cable)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	addr, err := netlink.ParseAddr(vtep.String() + "/24")
	if err != nil {
		t.Fatal(err)
	}
	var w tunnelWatch
	for _, c := range []struct {
		name string
		do   func() error
		want string
	}{
		{"nobody has had it", func() error { return nil }, ""},
		{"it is there", func() error { return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link)) }, ""},
		{"down", func() error { return netlink.LinkSetDown(link) }, "interface under7, which has the tunnel's address 192.0.2.77, is down"},
		{"up", func() error { return netlink.LinkSetUp(link) }, ""},
		{"without a link", func() error { return netlink.LinkSetDown(cable) }, "is down or has no link"},
		{"with a link", func() error { return netlink.LinkSetUp(cable) }, ""},
		{"taken away", func() error { return netlink.AddrDel(link, addr) }, "interface under7 had the tunnel's address"},
		{"given back", func() error { return netlink.AddrAdd(link, addr) }, ""},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := w.problem(vtep); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestVLANNetworksAreKnownFromDifferences: the VLAN networks of desired states are known from what differs between them.
func TestVLANNetworksAreKnownFromDifferences(t *testing.T) {
	var v vlans
	var pic desired.Host
	set := func(id model.NetworkID, encap model.Encap) {
		pic.Networks = pic.Networks.Set(id, &desired.Network{ID: id, Key: model.NetworkKey{Tenant: "blue", Name: "n"}, Encap: encap})
	}
	for _, step := range []struct {
		do   func()
		want int
	}{
		{func() {}, 0},
		{func() { set(1, model.EncapVXLAN); set(2, model.EncapVLAN); set(3, model.EncapVLAN) }, 2},
		{func() {}, 2},
		{func() { set(3, model.EncapVXLAN) }, 1},
		{func() { pic.Networks = pic.Networks.Delete(2) }, 0},
	} {
		step.do()
		if got := v.follow(pic); len(got) != step.want {
			t.Errorf("%v, want %d", got, step.want)
		}
	}
}
