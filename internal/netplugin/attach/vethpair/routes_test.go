package vethpair

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Run(m, nil)) }

// TestRoutesInTheWay: a wider route by a gateway overlaps with a prefix, and is no conflict;
// default routes and those of the interface itself are neither.
func TestRoutesInTheWay(t *testing.T) {
	testenv.Need(t)
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	own := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own0"}}
	for _, l := range []*netlink.Bridge{link, own} {
		if err := netlink.LinkAdd(l); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = netlink.LinkDel(l) }()
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	add := func(l *netlink.Bridge, to string, gateway net.IP) {
		t.Helper()
		dst, err := netlink.ParseIPNet(to)
		if err != nil {
			t.Fatal(err)
		}
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: gateway}
		if gateway == nil {
			r.Scope = unix.RT_SCOPE_LINK
		}
		if err := netlink.RouteAdd(r); err != nil {
			t.Fatalf("%s: %v", to, err)
		}
	}
	add(link, "10.1.0.0/16", nil)
	add(link, "10.2.3.0/24", nil)
	add(link, "10.0.0.0/8", net.IPv4(10, 1, 0, 1))
	add(link, "10.2.4.0/24", net.IPv4(10, 1, 0, 1))
	add(link, "0.0.0.0/0", net.IPv4(10, 1, 0, 1))
	add(own, "10.2.5.0/24", nil)
	for prefix, want := range map[string][2][]string{ // that overlap, and that are in the way
		"10.2.0.0/16": {
			{"route 10.0.0.0/8 on br0", "route 10.2.3.0/24 on br0", "route 10.2.4.0/24 on br0"},
			{"route 10.2.3.0/24 on br0", "route 10.2.4.0/24 on br0"},
		},
		"10.1.2.0/24":  {{"route 10.0.0.0/8 on br0", "route 10.1.0.0/16 on br0"}, {"route 10.1.0.0/16 on br0"}},
		"192.0.2.0/24": {},
		"fd00::/64":    {},
	} {
		p := netip.MustParsePrefix(prefix)
		overlap, _, err := Overlaps(p, "own0")
		if err != nil || !slices.Equal(overlap, want[0]) {
			t.Errorf("%s overlaps with %q, %v", prefix, overlap, err)
		}
		conflicts, err := ConflictingRoutes("own0", netip.Prefix{}, p)
		if err != nil || !slices.Equal(conflicts, want[1]) {
			t.Errorf("in the way of %s are %q, %v", prefix, conflicts, err)
		}
	}
}
