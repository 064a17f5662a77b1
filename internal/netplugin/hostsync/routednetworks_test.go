package hostsync

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRoutedSubnetsFollowTheDesiredState: the subnets of native networks follow desired states, sorted and without host
// bits; another list is made only where they differ, for who holds the former one.
func TestRoutedSubnetsFollowTheDesiredState(t *testing.T) {
	network := func(id model.NetworkID, native bool, four, six string) *desired.Network {
		n := &desired.Network{ID: id, Routed: native}
		if four != "" {
			n.Subnet = netip.MustParsePrefix(four)
		}
		if six != "" {
			n.Subnet6 = netip.MustParsePrefix(six)
		}
		return n
	}
	var n routedNetworks
	var last []netip.Prefix
	for _, x := range []struct {
		name     string
		networks []*desired.Network
		want     string
		six      bool
		same     bool // the list stays the one that it was
	}{
		{"none", nil, "[]", false, true},
		{"one that is not native", []*desired.Network{network(1, false, "10.1.0.0/16", "fd00:1::/64")}, "[]", false, true},
		{"one that is", []*desired.Network{network(1, false, "10.1.0.0/16", ""), network(2, true, "10.244.3.1/16", "")}, "[10.244.0.0/16]", false, false},
		{
			"another one",
			[]*desired.Network{network(2, true, "10.244.3.1/16", ""), network(3, true, "10.2.0.0/16", "fd00:2::7/64")},
			"[10.2.0.0/16 10.244.0.0/16 fd00:2::/64]", true, false,
		},
		{
			"one more that is not",
			[]*desired.Network{network(2, true, "10.244.3.1/16", ""), network(3, true, "10.2.0.0/16", "fd00:2::7/64"), network(4, false, "10.4.0.0/16", "")},
			"[10.2.0.0/16 10.244.0.0/16 fd00:2::/64]", true, true,
		},
		{"its subnet of IPv6 goes", []*desired.Network{network(2, true, "10.244.3.1/16", ""), network(3, true, "10.2.0.0/16", "")}, "[10.2.0.0/16 10.244.0.0/16]", false, false},
		{"native no more", []*desired.Network{network(2, false, "10.244.3.1/16", ""), network(3, true, "10.2.0.0/16", "")}, "[10.2.0.0/16]", false, false},
		{"all gone", nil, "[]", false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			var now desired.Map[model.NetworkID, *desired.Network]
			for _, m := range x.networks {
				if old, had := n.last.Get(m.ID); had && old.Equal(m) {
					m = old // pictures share what stays
				}
				now = now.Set(m.ID, m)
			}
			held := slices.Clone(last)
			n.follow(now)
			if text := fmt.Sprint(n.subnets); text != x.want || n.six != x.six {
				t.Errorf("subnets %s, of IPv6 %v; want %s, %v", text, n.six, x.want, x.six)
			}
			if !slices.Equal(last, held) {
				t.Errorf("the former list has become %v", last)
			}
			if same := len(last) == len(n.subnets) && (len(last) == 0 || &last[0] == &n.subnets[0]); x.same && !same {
				t.Error("the same list was made anew")
			}
			last = n.subnets
		})
	}
}
