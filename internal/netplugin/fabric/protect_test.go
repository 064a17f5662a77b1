package fabric

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/bgp"
)

// Each kind of address of the cluster is protected, and nothing else.
func TestClusterAddressesAreProtected(t *testing.T) {
	one := func(a string) netip.Prefix { return netip.PrefixFrom(addr(a), addr(a).BitLen()) }
	want := map[string]netip.Prefix{
		"a network": prefix("10.1.1.0/24"), "its IPv6": prefix("fd01::/64"), "a network of whatever tenant": prefix("10.80.3.0/24"),
		"a service": one("10.1.1.100"), "a service's IPv6": one("fd01::100"), "a frontend": one("10.96.0.1"), "a range of services": prefix("10.96.0.0/12"),
		"private addresses": prefix("172.19.0.0/16"), "a tunnel": one("10.0.0.2"), "a node": one("10.0.0.3"), "a node's address": one("10.0.0.4"),
		"this host's tunnel": one("10.0.0.1"), "the control plane": one("10.0.0.5"),
	}
	pic := desired.Host{Name: "h1", FwdMode: model.FwdRouting, HostNAT: desired.NewHostNAT(prefix("172.19.0.0/16")).WithIPv6(), VTEP: addr("10.0.0.1")}
	want["private IPv6"] = pic.HostNAT.Subnet6.Masked()
	port(&pic, 5, network(1, "blue", model.EncapVXLAN))
	s := &desired.Service{
		Key: model.ServiceKey{Tenant: "blue", Name: "shop"}, IPv4: addr("10.1.1.100"), IPv6: addr("fd01::100"),
		Frontends: []desired.Frontend{{Addr: addr("10.96.0.1")}, {Addr: addr("0.0.0.0")}},
	}
	pic.Services = pic.Services.Set(s.Key, s)
	pic.ServiceRanges = []netip.Prefix{prefix("10.96.0.0/12")}
	pic.Tunnels = pic.Tunnels.Set(addr("10.0.0.2"), "h2")
	pic.Nodes = pic.Nodes.Set(addr("10.0.0.3"), addr("10.0.0.3"))
	pic.NodeAddrs = pic.NodeAddrs.Set(addr("10.0.0.4"), struct{}{})
	got := hostPrefixesOf(Input{Settings: settings(), Desired: pic, Networks: []netip.Prefix{prefix("10.80.3.7/24")}, Machines: []netip.Addr{addr("::ffff:10.0.0.5"), {}}}).protected
	for what, p := range want {
		if !slices.Contains(got, p) {
			t.Errorf("%s, %s, is not protected", what, p)
		}
	}
	known := map[netip.Prefix]bool{}
	for _, p := range want {
		known[p] = true
	}
	for _, p := range got {
		if !known[p] {
			t.Errorf("%s is protected, and nobody's", p)
		}
	}
}

// Only addresses of containers on joined networks of encap vlan are announced, where the
// data plane has their ports and the host routes.
func TestOnlyAllowedAddressesAreAnnounced(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*desired.Network, *Input)
		want   int
	}{
		"as it should be":        {func(*desired.Network, *Input) {}, 1},
		"not joined":             {func(n *desired.Network, _ *Input) { n.Joined = 0 }, 0},
		"by tunnels":             {func(n *desired.Network, _ *Input) { n.Encap = model.EncapVXLAN }, 0},
		"a port that is refused": {func(_ *desired.Network, in *Input) { in.Refused = map[string]bool{"p1-5": true} }, 0},
		"another port refused":   {func(_ *desired.Network, in *Input) { in.Refused = map[string]bool{"p1-6": true} }, 1},
		"forwarding mode bridge": {func(_ *desired.Network, in *Input) { in.Desired.FwdMode = model.FwdBridge }, 0},

		"of a tenant admin": {func(n *desired.Network, _ *Input) { n.ByTenant = true }, 0},
		"of a tenant admin, allowed": {func(n *desired.Network, in *Input) {
			n.ByTenant, in.Allowed = true, model.Prefixes{prefix("10.1.0.0/16")}
		}, 1},
		"outside of what is allowed":  {func(_ *desired.Network, in *Input) { in.Allowed = model.Prefixes{prefix("10.2.0.0/16")} }, 0},
		"a machine's address":         {func(_ *desired.Network, in *Input) { in.Machines = []netip.Addr{addr("10.1.1.5")} }, 0},
		"in the routers' network":     {func(_ *desired.Network, in *Input) { in.Settings.RouterIP = prefix("10.1.1.2/24") }, 0},
		"a router's address":          {func(_ *desired.Network, in *Input) { in.Settings.Neighbor = addr("10.1.1.5") }, 0},
		"in another's router network": {func(_ *desired.Network, in *Input) { in.Routers = []netip.Prefix{prefix("10.1.0.0/16")} }, 0},
		"in the underlay":             {func(_ *desired.Network, in *Input) { in.Underlay = []netip.Prefix{prefix("10.1.0.0/16")} }, 0},
		"beside the underlay":         {func(_ *desired.Network, in *Input) { in.Underlay = []netip.Prefix{prefix("10.0.0.0/16")} }, 1},
	} {
		in := Input{Settings: settings(), Desired: desired.Host{Name: "h1", FwdMode: model.FwdRouting, HostNAT: desired.NewHostNAT(prefix("172.19.0.0/16"))}}
		n := network(1, "blue", model.EncapVLAN)
		test.change(n, &in)
		port(&in.Desired, 5, n)
		if got := hostPrefixesOf(in).all; len(got) != test.want || test.want == 1 && got[0].Prefix != prefix("10.1.1.5/32") {
			t.Errorf("%s: it tells of %v", what, got)
		}
		silent := hostPrefixesOf(in).withheld
		if judged := test.want == 0 && in.Desired.FwdMode == model.FwdRouting && n.Joined != 0 && n.Encap == model.EncapVLAN && len(in.Refused) == 0; judged != (len(silent) == 1) {
			t.Errorf("%s: it says %q of what is not announced", what, silent)
		}
	}
}

// Another machine that announces an address of this host is reported, and takes nothing
// away.
func TestAnnouncedHostAddressIsReported(t *testing.T) {
	b := newBench(t, "50.1.1.200/32", "50.1.1.201/32")
	b.in.Settings = settings()
	b.in.Settings.More = []model.BgpRouter{{Address: addr("50.1.1.201"), AS: 501}}
	port(&b.in.Desired, 5, network(1, "blue", model.EncapVLAN))
	b.start()
	b.peer("50.1.1.201", 501, bgp.Neighbor{}, map[string]string{"10.1.1.5/32": "50.1.1.211", "10.60.0.0/16": "50.1.1.211"})
	r := b.peer("50.1.1.200", routerAS, bgp.Neighbor{}, nil)
	b.heard(r, "10.1.1.5/32")
	b.until("the reason", func() (bool, string) {
		st := b.router.State(t.Context())
		return len(st.Peers) == 2 && st.Peers[1].Why[bgp.ReasonOwn] == 1 && len(st.Announced) == 1, st.Admin
	})
	b.wantRoutes(map[string]string{"10.60.0.0/16": "50.1.1.211"})
	if got := b.owned(); got["172.19.1.5"] != "10.1.1.5" {
		t.Errorf("own addresses %v", got)
	}
}
