package hoststack

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestVLANsOfHostAreRead: a host's VLAN interfaces are read with their VLANs, each once.
func TestVLANsOfHostAreRead(t *testing.T) {
	got := vlansOf([]netlink.Link{&netlink.Vlan{VlanId: 10}, &netlink.Dummy{}, &netlink.Vlan{VlanId: 9}, &netlink.Vlan{VlanId: 10}})
	if !slices.Equal(got, []uint16{9, 10}) {
		t.Errorf("VLANs %v", got)
	}
}
