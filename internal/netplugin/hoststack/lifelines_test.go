package hoststack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestVLANsOfHostAreRead: a host's VLAN interfaces are read with their VLANs, each once.
func TestVLANsOfHostAreRead(t *testing.T) {
	got := vlansOf([]netlink.Link{&netlink.Vlan{VlanId: 10}, &netlink.Dummy{}, &netlink.Vlan{VlanId: 9}, &netlink.Vlan{VlanId: 10}})
	if !slices.Equal(got, []uint16{9, 10}) {
		t.Errorf("VLANs %v", got)
	}
}

// TestGatewaysOfTheWayAreLifelines: the gateways by which a host reaches netmasters are among
// what it needs, also where no default route leads there, and no service takes their place.
func TestGatewaysOfTheWayAreLifelines(t *testing.T) {
	s := newSite(t)
	for _, line := range []string{
		"addr add 2001:db8::1/64 dev up0 nodad", "route add default via 198.51.100.2",
		"route add 203.0.113.1 via 198.51.100.9", "route add 203.0.113.2 via 10.77.0.9 dev up0 onlink", "route add 203.0.113.3 via inet6 2001:db8::9",
		"route add 203.0.113.4 nexthop via 198.51.100.7 nexthop via 198.51.100.8",
		"-6 route add 2001:db8:1::1 via 2001:db8::8", "route add 203.0.113.5 via 198.51.100.6 table 7", "rule add to 203.0.113.5 table 7",
	} {
		run(t, append([]string{"ip", "-n", s.host}, strings.Fields(line)...)...)
	}
	var way []netip.Addr
	for _, a := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4", "203.0.113.5", "2001:db8:1::1", "2001:db8:2::1"} {
		way = append(way, netip.MustParseAddr(a))
	}
	var got model.Lifelines
	if err := in(t, s.host, func() error { got = Lifelines(way); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"198.51.100.2", "198.51.100.9", "10.77.0.9", "2001:db8::9", "198.51.100.7", "198.51.100.8", "2001:db8::8", "198.51.100.6"} {
		if got[netip.MustParseAddr(a)].Kind != model.GatewayLifeline {
			t.Errorf("%s is no lifeline: %v", a, got)
		}
	}
	if err := in(t, s.host, func() error {
		if by := DeviceTo(netip.MustParseAddr("10.77.0.9")); by != "" && by != "up0" {
			return fmt.Errorf("10.77.0.9 is reached by %q", by)
		}
		if by := DeviceTo(netip.MustParseAddr("198.51.100.9")); by != "up0" {
			return fmt.Errorf("198.51.100.9 is reached by %q", by)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	s.want.ControlPath = way
	s.want.Services = []Service{{Addr: netip.MustParseAddr("10.77.0.9"), Name: "default/web"}}
	if problems := s.apply(); len(problems) != 1 || !strings.Contains(fmt.Sprint(problems), "that of the gateway to 203.0.113.2 of this host, 10.77.0.9") {
		t.Errorf("problems: %v", problems)
	}
}
