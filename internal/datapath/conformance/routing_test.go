package conformance

import (
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// reachRouted asks for each two endpoints whether one reaches the other.
func reachRouted(t *testing.T, w *World, each func(from, to model.Endpoint, v6 bool, reached bool, hops []reference.Hop)) {
	t.Helper()
	sport := uint16(20000)
	for _, from := range w.Topology.Endpoints {
		for _, to := range w.Topology.Endpoints {
			for _, v6 := range []bool{false, true} {
				if from.Key == to.Key || !bothHave(from, to, v6) {
					continue
				}
				sport++
				ok, hops := w.Fabric.Reach(reference.Probe{
					FromHost: from.Host, FromPort: compile.IfName(from.Key), ToHost: to.Host, ToPort: compile.IfName(to.Key),
					IPv6: v6, Proto: model.ProtoTCP, SrcPort: sport, DstPort: 80,
				})
				each(from, to, v6, ok, hops)
			}
		}
	}
}

// TestRoutedEndpointsReachTheirTenant: an endpoint reaches all networks of its tenant, in both ARP modes, and
// no other tenant; in forwarding mode bridge it reaches its own network only.
func TestRoutedEndpointsReachTheirTenant(t *testing.T) {
	for _, arp := range []model.ArpMode{model.ArpProxy, model.ArpFlood} {
		for _, fwd := range []model.FwdMode{model.FwdRouting, model.FwdBridge} {
			top := RoutedTopology()
			top.Global.ArpMode, top.Global.FwdMode = arp, fwd
			w, err := NewWorld(top, Case{})
			if err != nil {
				t.Fatal(err)
			}
			reachRouted(t, w, func(from, to model.Endpoint, v6, reached bool, hops []reference.Hop) {
				want := from.Key.Network == to.Key.Network || fwd == model.FwdRouting && from.Key.Network.Tenant == to.Key.Network.Tenant
				if reached != want {
					t.Errorf("%s, %s: %s > %s IPv6 %v: %v, want %v: %v", arp, fwd, from.Key, to.Key, v6, reached, want, hops)
				}
			})
		}
	}
}

// TestRoutedCasesReachTheirGroupsOnly checks what each of the cases is for: who reaches whom of the
// groups that it names.
func TestRoutedCasesReachTheirGroupsOnly(t *testing.T) {
	top := RoutedTopology()
	want := map[string]struct{ no, yes [][2]string }{
		"a group of another network is denied":       {[][2]string{{"web1", "app1"}, {"web2", "app1"}, {"web1", "app2"}}, [][2]string{{"db1", "app1"}, {"app1", "web2"}, {"lan2", "app1"}}},
		"only a group of another network is allowed": {[][2]string{{"web1", "app1"}, {"app2", "app1"}, {"lonely1", "app1"}}, [][2]string{{"lan1", "app1"}, {"lan2", "app1"}, {"app1", "web1"}}},
		"a group that is elsewhere alone is allowed": {[][2]string{{"app1", "web1"}, {"app1", "app2"}, {"app1", "lan2"}}, [][2]string{{"app1", "far2"}, {"web1", "app1"}}},
		"only a network is allowed":                  {[][2]string{{"lan1", "app1"}, {"app2", "app1"}, {"far2", "app1"}}, [][2]string{{"web2", "app1"}, {"solo1", "app2"}}},
		"a VLAN network is denied":                   {[][2]string{{"lan1", "app1"}, {"lan2", "app1"}, {"lonely1", "app2"}}, [][2]string{{"web1", "app1"}, {"app1", "lan1"}}},
		"its own network alone is allowed":           {[][2]string{{"web1", "lan1"}, {"app2", "lan1"}}, [][2]string{{"lan2", "lan1"}, {"lonely1", "lan2"}}},
		"a network is denied":                        {[][2]string{{"web1", "app1"}, {"web1", "app2"}}, [][2]string{{"web1", "lan2"}, {"db1", "app1"}, {"app2", "web1"}}},
		"a subnet alone is allowed":                  {[][2]string{{"app2", "lan1"}, {"lan2", "lan1"}}, [][2]string{{"web2", "lan1"}, {"solo1", "lan2"}}},
		"a subnet of IPv6 is denied":                 {nil, [][2]string{{"web2", "lan1"}, {"app1", "lan1"}}},
		"an address is denied":                       {[][2]string{{"web1", "app2"}, {"lan2", "web1"}}, [][2]string{{"web1", "app1"}, {"lan1", "web1"}}},
		"a port alone is allowed":                    {nil, [][2]string{{"web1", "app1"}, {"lan2", "app1"}}},
	}
	cases := RoutedCases(top)
	if len(cases) != len(want) {
		t.Errorf("%d cases, want %d", len(cases), len(want))
	}
	for _, c := range cases {
		w, err := NewWorld(top, c)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		reachRouted(t, w, func(from, to model.Endpoint, v6, reached bool, hops []reference.Hop) {
			pair := [2]string{string(from.Key.ID), string(to.Key.ID)}
			if v6 || from.Key.Network.Tenant != "blue" || to.Key.Network.Tenant != "blue" {
				return
			}
			if reached && slices.Contains(want[c.Name].no, pair) || !reached && slices.Contains(want[c.Name].yes, pair) {
				t.Errorf("%s: %v is %v: %v", c.Name, pair, reached, hops)
			}
		})
	}
}

// TestSharedNetworksAreReachedByRule: tenants reach networks that are shared with them where a rule allows it.
// A shared network opens no connection towards them, and is no way to another tenant. In
// forwarding mode bridge no network reaches another.
func TestSharedNetworksAreReachedByRule(t *testing.T) {
	reached := func(c Case, fwd model.FwdMode, from, to model.Endpoint) bool {
		f, g := from.Key.Network, to.Key.Network
		switch {
		case f == g:
			return true
		case fwd == model.FwdBridge:
			return false
		case f.Tenant == g.Tenant:
			return true
		case c.Name == "open" && g.Name == "dns":
			return f.Tenant == "blue" || f.Tenant == "red"
		}
		return c.Name == "open" && g.Name == "log" && f.Name == "b"
	}
	for _, fwd := range []model.FwdMode{model.FwdRouting, model.FwdBridge} {
		top := SharedTopology()
		top.Global.FwdMode = fwd
		for _, c := range SharedCases(top) {
			w, err := NewWorld(top, c)
			if err != nil {
				t.Fatal(err)
			}
			reachRouted(t, w, func(from, to model.Endpoint, v6, got bool, hops []reference.Hop) {
				if want := reached(c, fwd, from, to); got != want {
					t.Errorf("%s, %s: %s > %s IPv6 %v: %v, want %v: %v", c.Name, fwd, from.Key, to.Key, v6, got, want, hops)
				}
			})
		}
	}
}
