package fabric

import (
	"os"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
)

// Where IPv6 is off on the routers' interface, the host says so and goes on with IPv4.
func TestHostWithoutIPv6GoesOnWithIPv4(t *testing.T) {
	b := newBench(t, "50.1.1.200/32", "fd50::200/128")
	turn := func(value string) {
		t.Helper()
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+uplink+"/disable_ipv6", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	turn("1")
	b.in.Settings = settings()
	b.in.Settings.RouterIP6 = prefix("fd50::2/64")
	b.start()
	b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{"10.50.0.0/16": "50.1.1.200", "fd60::/32": "fd50::210"})
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.200"})
	b.problem("BGP routerip6", "IPv6 is off on interface up0")
	turn("0")
	b.set(func(in *Input) { in.Settings.Default = true }) // else it is seen within a minute
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.200", "fd60::/32": "fd50::210"})
	if on, there := b.find("fd50::2"); on != uplink || !there {
		t.Errorf("fd50::2 is on %q", on)
	}
}

// Next hops that the kernel refuses, or that do not exist, keep the host neither from using
// other routes nor from announcing a new container.
func TestRefusedRoutesDoNotStopOthers(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	b.in.Settings = settings()
	b.in.Settings.RouterIP6 = prefix("fd50::2/64")
	if err := hoststack.PutAddress(hoststack.HostAddr{Device: uplink, Prefix: prefix("fd50::9/64")}); err != nil {
		t.Fatal(err)
	}
	on := network(1, "blue", model.EncapVLAN)
	port(&b.in.Desired, 5, on)
	b.start()
	r := b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, map[string]string{
		"10.50.0.0/16": "50.1.1.210", "10.60.0.0/16": "50.1.1.255", "10.70.0.0/16": "50.1.1.0",
		"fd60::/32": "fd50::9", "fd70::/32": "fd50::210",
	})
	b.heard(r, "10.1.1.5/32")
	b.wantRoutes(map[string]string{"10.50.0.0/16": "50.1.1.210", "fd70::/32": "fd50::210"})
	b.problem("BGP routes", "2 learned prefixes lead to what is no router")
	b.problem("BGP", "route to fd60::/32: invalid argument")
	b.set(func(in *Input) { port(&in.Desired, 6, on) })
	b.heard(r, "10.1.1.5/32", "10.1.1.6/32")
}

// No route leads into a network that the host is on, such as another router's address: its
// session would be led away.
func TestNoRouteIntoLinks(t *testing.T) {
	b := newBench(t, "50.1.1.200/32")
	if err := hoststack.PutAddress(hoststack.HostAddr{Device: "peer0", Prefix: prefix("51.1.1.3/24")}); err != nil {
		t.Fatal(err)
	}
	b.in.Settings = settings()
	b.start()
	by := map[string]string{}
	for _, p := range []string{"50.1.1.201/32", "50.1.1.128/25", "50.1.1.0/24", "51.1.1.9/32", "50.0.0.0/8", "51.1.2.0/24"} {
		by[p] = "50.1.1.210"
	}
	b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, by)
	b.wantRoutes(map[string]string{"50.0.0.0/8": "50.1.1.210", "51.1.2.0/24": "50.1.1.210"})
}
