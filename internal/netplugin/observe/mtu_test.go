package observe

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
)

// TestContainersWithBiggerMTUThanTunnelAreReported: only those on VXLAN networks count.
func TestContainersWithBiggerMTUThanTunnelAreReported(t *testing.T) {
	vx, vl := model.NetworkKey{Tenant: "blue", Name: "vx"}, model.NetworkKey{Tenant: "blue", Name: "vl"}
	seen := &observation{}
	seen.Networks = seen.Networks.Set(1, &desired.Network{ID: 1, Key: vx, Encap: model.EncapVXLAN}).Set(2, &desired.Network{ID: 2, Key: vl, Encap: model.EncapVLAN})
	for _, e := range []model.EndpointKey{{Network: vx, ID: "a"}, {Network: vl, ID: "b"}} {
		mtu := 1450
		if e.Network == vl {
			mtu = 1500
		}
		seen.finished = append(seen.finished, attachment.Entry{Endpoint: e, Result: &attach.Result{MTU: mtu}})
	}
	for underlay, told := range map[int]bool{1500: false, 1499: true, 1400: true} {
		cfg := &Config{VTEP: netip.MustParseAddr("192.0.2.1"), Underlay: &hostsync.Underlay{MTU: underlay, VTEP: netip.MustParseAddr("192.0.2.1")}}
		err := networksCarryMTU(t.Context(), cfg, seen)
		if (err != nil) != told || told && !strings.Contains(err.Error(), "have an MTU of up to 1450 (1 of them, such as blue:vx:a)") {
			t.Errorf("underlay of %d: %v", underlay, err)
		}
	}
}
