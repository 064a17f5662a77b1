package agent

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestOnlyChangedVLANEndpointsAreAnnounced: those of VXLAN networks never are, and a network
// that gets another tag has all of its endpoints announced.
func TestOnlyChangedVLANEndpointsAreAnnounced(t *testing.T) {
	t.Parallel()
	var want desired.Host
	want.Networks = want.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVLAN, Tag: 60}).Set(2, &desired.Network{ID: 2, Encap: model.EncapVXLAN, Tag: 700})
	port := func(n model.NetworkID, last byte) *desired.Port {
		return &desired.Port{Network: n, MAC: model.MAC{2, 2, 10, 1, 0, last}, IPv4: netip.AddrFrom4([4]byte{10, 1, 0, last})}
	}
	want.Ports = want.Ports.Set("vl1", port(1, 1)).Set("vx1", port(2, 2))
	var x announced
	got := x.follow(want)
	if s := got["vl1"]; s == nil || s.Tag != 60 || len(s.Addrs) != 1 || got["vx1"] != nil {
		t.Fatalf("at first: %+v", got)
	}
	want.Ports = want.Ports.Set("vl2", port(1, 3))
	if got = x.follow(want); len(got) != 1 || got["vl2"] == nil {
		t.Errorf("one comes: %+v", got)
	}
	if got = x.follow(want); len(got) != 0 {
		t.Errorf("nothing has changed: %+v", got)
	}
	want.Networks = want.Networks.Set(1, &desired.Network{ID: 1, Encap: model.EncapVLAN, Tag: 61})
	if got = x.follow(want); len(got) != 2 || got["vl1"].Tag != 61 || got["vl2"].Tag != 61 {
		t.Errorf("another tag: %+v", got)
	}
	want.Ports = want.Ports.Delete("vl1")
	if got = x.follow(want); len(got) != 1 || got["vl1"] != nil {
		t.Errorf("one goes: %+v", got)
	}
}
