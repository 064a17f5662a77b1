package compile

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A container of a VLAN network reaches the control plane past its host by a gateway, or
// where its address is on the network itself.
func TestControlIsDeniedWhereAVLANLeadsToIt(t *testing.T) {
	c := &ControlPlane{targets: []netip.AddrPort{netip.MustParseAddrPort("198.51.100.1:9999")}}
	for _, tc := range []struct {
		encap           model.Encap
		subnet, gateway string
		denied          bool
	}{
		{model.EncapVLAN, "10.7.0.0/16", "10.7.0.1", true},
		{model.EncapVLAN, "198.51.100.0/24", "", true},
		{model.EncapVLAN, "10.7.0.0/16", "", false},
		{model.EncapVXLAN, "198.51.100.0/24", "198.51.100.254", false},
	} {
		n := &model.Network{Encap: tc.encap, Subnet: netip.MustParsePrefix(tc.subnet)}
		if tc.gateway != "" {
			n.Gateway = netip.MustParseAddr(tc.gateway)
		}
		if got := len(c.tier(n)) > 0; got != tc.denied {
			t.Errorf("%v %s gateway %q: denied %v, want %v", tc.encap, tc.subnet, tc.gateway, got, tc.denied)
		}
	}
}
