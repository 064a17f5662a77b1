package compile_test

import (
	"net/netip"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRoutedNetworksAreOnEveryHost: a native network is in the desired state of every host, while it is native, and
// its ports have no private addresses where the data plane can do without.
func TestRoutedNetworksAreOnEveryHost(t *testing.T) {
	top := conformance.StandardTopology()
	top.Hosts = append(top.Hosts, model.Host{Name: "h3", VTEP: conformance.ThirdVTEP})
	native := top.Networks[0]
	native.Routed = true
	vlan := top.Networks[1]
	vlan.Routed = true
	e := top.Endpoints[0]
	for _, lacks := range []bool{false, true} {
		for _, host := range []model.HostName{"h1", "h3"} {
			c := conformance.NewCompiler(top, host)
			if lacks {
				c.Egress.SetNoRoutedNetworks()
			}
			c.Egress.SetPrivate(desired.NewHostNAT(top.Global.PvtSubnet))
			c.Egress.SetPrivateAddress(e.Key, netip.MustParseAddr("172.19.0.9"))
			want := func(when string, is bool) {
				t.Helper()
				pic, problems := c.Compile(1)
				n, there := pic.Networks.Get(native.ID)
				if len(problems) > 0 || there != (is || host == "h1") || there && n.Routed != is {
					t.Errorf("%s, %s: there %v, %+v, problems %v", host, when, there, n, problems)
				}
				if far, _ := pic.Remotes.Get(desired.RemoteKey{Network: native.ID, MAC: e.MAC}); (far != nil) != (is && host == "h3") {
					t.Errorf("%s, %s: %s is there: %+v", host, when, e.Key, far)
				}
				if p, ok := pic.Ports.Get(compile.IfName(e.Key)); ok != (host == "h1") || ok && p.Private.IsValid() != (!is || lacks) {
					t.Errorf("%s, %s: port %+v", host, when, p)
				}
			}
			want("before", false)
			c.SetNetwork(native)
			want("native", true)
			c.SetNetwork(top.Networks[0])
			want("native no more", false)
			c.SetNetwork(native)
			c.DeleteNetwork(native.Key)
			c.SetNetwork(top.Networks[0])
			want("deleted and there again", false)
		}
	}
	c := conformance.NewCompiler(top, "h1")
	c.SetNetwork(vlan)
	if n, _ := first(c.Compile(1)).Networks.Get(vlan.ID); n.Routed {
		t.Error("a VLAN network is native")
	}
}

func first(pic desired.Host, _ []compile.Problem) desired.Host { return pic }

// TestNodeAddressesAreOnEveryHost: each address of a host's record is in every desired state, with the host's tunnel
// endpoint.
func TestNodeAddressesAreOnEveryHost(t *testing.T) {
	addr := netip.MustParseAddr
	c := compile.New("h2")
	want := func(when string, nodes map[string]string) {
		t.Helper()
		pic, _ := c.Compile(1)
		if pic.Nodes.Len() != len(nodes) {
			t.Errorf("%s: %d nodes, want %v", when, pic.Nodes.Len(), nodes)
		}
		for a, vtep := range nodes {
			if got, _ := pic.Nodes.Get(addr(a)); got != addr(vtep) {
				t.Errorf("%s: %s is by %s, want %s", when, a, got, vtep)
			}
		}
	}
	h1 := model.Host{Name: "h1", VTEP: addr("192.168.0.1"), Control: addr("10.0.0.1"), IPv6: addr("2001:db8::1")}
	h2 := model.Host{Name: "h2", VTEP: addr("192.168.0.2"), Control: addr("192.168.0.2")}
	h3 := model.Host{Name: "h3", VTEP: addr("192.168.0.3"), Control: addr("127.0.0.1"), IPv6: addr("fe80::3")}
	c.SetHost(h1)
	c.SetHost(h2)
	c.SetHost(h3)
	all := map[string]string{
		"192.168.0.1": "192.168.0.1", "10.0.0.1": "192.168.0.1", "2001:db8::1": "192.168.0.1", "192.168.0.2": "192.168.0.2", "192.168.0.3": "192.168.0.3",
	}
	want("three hosts", all)
	h3.Control, h3.IPv6 = addr("10.0.0.1"), netip.Addr{}
	c.SetHost(h3)
	want("one address of two", all)
	h2.Control = addr("10.0.0.1")
	c.SetHost(h2)
	all["10.0.0.1"] = "192.168.0.2"
	want("and this host's", all)
	h1.VTEP = addr("192.168.0.9")
	c.SetHost(h1)
	want("another tunnel", map[string]string{
		"192.168.0.9": "192.168.0.9", "10.0.0.1": "192.168.0.2", "2001:db8::1": "192.168.0.9", "192.168.0.2": "192.168.0.2", "192.168.0.3": "192.168.0.3",
	})
	c.DeleteHost("h1")
	c.DeleteHost("h3")
	want("gone", map[string]string{"192.168.0.2": "192.168.0.2", "10.0.0.1": "192.168.0.2"})
}
