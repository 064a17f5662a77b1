package hostsync

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
)

func TestSocketsReachContainersOnNetworksThatAreNotRouted(t *testing.T) {
	addr := netip.MustParseAddr
	c := newContainers(newSockets(hostservices.Config{Pins: "/x"}))
	var pic desired.Host
	port := func(name string, network model.NetworkID, own, nat string) {
		pic.Ports = pic.Ports.Set(name, &desired.Port{IfName: name, Network: network, IPv4: addr(own), Private: addr(nat)})
	}
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1}).Set(2, &desired.Network{ID: 2, Routed: true}).Set(3, &desired.Network{ID: 3, ByTenant: true})
	expect := func(when, want string, problems int) {
		t.Helper()
		c.follow(pic)
		if got := fmt.Sprint(c.sockets.nat); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
		if p := c.problems(); len(p) != problems || problems > 0 && !strings.Contains(p[0].Text, "10.1.0.1") {
			t.Errorf("%s: problems %v", when, p)
		}
	}
	port("a", 1, "10.1.0.1", "172.19.0.1")
	port("b", 2, "10.2.0.1", "172.19.0.2")
	port("c", 3, "10.3.0.1", "172.19.0.3")
	expect("one that is not routed, one that is, one of a tenant", "map[10.1.0.1:172.19.0.1]", 0)
	port("d", 1, "10.1.0.1", "172.19.0.4")
	expect("two with one address", "map[]", 1)
	pic.Ports = pic.Ports.Delete("a")
	expect("the second alone", "map[10.1.0.1:172.19.0.4]", 0)
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1, Routed: true})
	expect("the network is routed now", "map[]", 0)
	c.sockets.unable = true
	pic.Networks = pic.Networks.Set(1, &desired.Network{ID: 1})
	c.follow(pic)
	if p := c.problems(); len(p) != 1 || !strings.Contains(p[0].Text, "cgroup2") {
		t.Errorf("where sockets cannot be led: problems %v", p)
	}
}
