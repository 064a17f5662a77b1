package observe

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// TestDownUplinkIsReported: an uplink that is down or has no link is reported by name, where the
// desired state has VLAN networks.
func TestDownUplinkIsReported(t *testing.T) {
	link, cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "up7"}, PeerName: "cable8"}, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cable8"}}
	if err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(cable)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	cfg := &Config{Underlay: &hostsync.Underlay{Uplinks: []string{"nosuch0", "up7", "lo"}}}
	for _, c := range []struct {
		name string
		do   func() error
		vlan bool
		told bool
	}{
		{"down", func() error { return nil }, true, true},
		{"down, and not needed", func() error { return nil }, false, false},
		{"up", func() error { return netlink.LinkSetUp(link) }, true, false},
		{"without a link", func() error { return netlink.LinkSetDown(cable) }, true, true},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		err := devicesPresent(t.Context(), cfg, &observation{SyncStatus: statemirror.SyncStatus{VLAN: c.vlan}})
		if (err != nil) != c.told || err != nil && !strings.Contains(err.Error(), "interface up7, the uplink of VLAN networks (--vlan-uplinks), is down or has no link") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
