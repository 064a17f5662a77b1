package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// routed tells a compiler of host h1 about a routed tenant: one network with an
// endpoint here, and n with one endpoint each on another host. It returns the
// i-th of these networks and its endpoint.
func routed(c *Compiler, n int) func(i int) (model.Network, model.Endpoint) {
	c.SetGlobal(model.Global{FwdMode: model.FwdRouting})
	for i := range 11 {
		c.SetHost(model.Host{Name: model.HostName(fmt.Sprint("h", i+1)), VTEP: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)})})
	}
	c.SetTenant(model.Tenant{Name: "blue", Router: 9})
	at := func(i int) (model.Network, model.Endpoint) {
		k := model.NetworkKey{Tenant: "blue", Name: model.NetworkName(fmt.Sprint("n", i))}
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)
		v4 := subnet.Addr().Next()
		return model.Network{Key: k, Encap: model.EncapVXLAN, Tag: uint32(i + 1), ID: model.NetworkID(i + 1), Subnet: subnet}, model.Endpoint{
			Key: model.EndpointKey{Network: k, ID: "e"}, Identity: 300, Host: model.HostName(fmt.Sprint("h", i%10+2)), IPv4: v4, MAC: model.EndpointMAC(k, v4, netip.Addr{}),
		}
	}
	c.SetIdentity(model.IdentityRecord{ID: 300, Network: model.NetworkKey{Tenant: "blue", Name: "n0"}})
	for i := range n + 1 {
		network, e := at(i)
		if i == 0 {
			e.Host = "h1"
		}
		c.SetNetwork(network)
		c.SetEndpoint(e)
	}
	return at
}

// joinedBy returns which networks are in a desired state, and by whom they are joined.
func joinedBy(h desired.Host) map[string]model.RouterID {
	out := map[string]model.RouterID{}
	for _, n := range h.Networks.All() {
		out[n.Key.String()] = n.Joined
	}
	return out
}

// A host has all joined networks of a tenant that has an endpoint on it, with all
// their endpoints, and floods on its own networks only.
func TestHostHasAllJoinedNetworksOfItsTenants(t *testing.T) {
	c := New("h1")
	at := routed(c, 2)
	red, e := at(7) // of a tenant that is not here
	red.Key.Tenant, e.Key.Network.Tenant = "red", "red"
	c.SetIdentity(model.IdentityRecord{ID: 300, Network: red.Key})
	c.SetTenant(model.Tenant{Name: "red", Router: 8})
	c.SetNetwork(red)
	c.SetEndpoint(e)
	local, _ := at(0)
	_, other := at(1)
	steps := []struct {
		name     string
		do       func()
		want     map[string]model.RouterID
		remotes  int
		problems []string
	}{
		{"routing", func() {}, map[string]model.RouterID{"blue:n0": 9, "blue:n1": 9, "blue:n2": 9}, 2, nil},
		{"mode bridge", func() { c.SetGlobal(model.Global{FwdMode: model.FwdBridge}) }, map[string]model.RouterID{"blue:n0": 0}, 0, nil},
		{"mode routing", func() { c.SetGlobal(model.Global{FwdMode: model.FwdRouting}) }, map[string]model.RouterID{"blue:n0": 9, "blue:n1": 9, "blue:n2": 9}, 2, nil},
		{"no settings", func() { c.DeleteGlobal() }, map[string]model.RouterID{"blue:n0": 0}, 0, []string{"global"}},
		{"no router", func() {
			c.SetGlobal(model.Global{FwdMode: model.FwdRouting})
			c.SetTenant(model.Tenant{Name: "blue"})
		}, map[string]model.RouterID{"blue:n0": 0}, 0, []string{"router of tenant blue"}},
		{"no tenant", func() { c.DeleteTenant("blue") }, map[string]model.RouterID{"blue:n0": 0}, 0, []string{"router of tenant blue"}},
		{"another router", func() { c.SetTenant(model.Tenant{Name: "blue", Router: 8}) }, map[string]model.RouterID{"blue:n0": 8, "blue:n1": 8, "blue:n2": 8}, 2, nil},
		{"an earlier tenant has it", func() { c.SetTenant(model.Tenant{Name: "a", Router: 8}) }, map[string]model.RouterID{"blue:n0": 0}, 0, []string{"router of tenant blue"}},
		{"it is gone", func() { c.DeleteTenant("a") }, map[string]model.RouterID{"blue:n0": 8, "blue:n1": 8, "blue:n2": 8}, 2, nil},
		{"a network is gone", func() { c.DeleteNetwork(other.Key.Network) }, map[string]model.RouterID{"blue:n0": 8, "blue:n2": 8}, 1, nil},
		{"no endpoint here", func() { c.DeleteEndpoint(model.EndpointKey{Network: local.Key, ID: "e"}) }, map[string]model.RouterID{}, 0, nil},
	}
	for _, s := range steps {
		s.do()
		pic, problems := c.Compile(1)
		if d := cmp.Diff(s.want, joinedBy(pic)); d != "" {
			t.Errorf("%s: networks (-want +got):\n%s", s.name, d)
		}
		if n := len(maps.Collect(pic.Remotes.All())); n != s.remotes {
			t.Errorf("%s: %d remotes, want %d", s.name, n, s.remotes)
		}
		for _, n := range pic.Networks.All() {
			if n.Key != local.Key && len(n.VTEPs) > 0 {
				t.Errorf("%s: network %s, which is not here, floods to %v", s.name, n.Key, n.VTEPs)
			}
		}
		var objects []string
		for _, p := range problems {
			objects = append(objects, p.Object)
		}
		if !slices.Equal(objects, s.problems) {
			t.Errorf("%s: problems %v, want %v", s.name, problems, s.problems)
		}
	}
}

// One change in a large routed tenant touches what it is about.
func TestRoutedChangeIsLocal(t *testing.T) {
	c := New("h1")
	at := routed(c, 1000)
	before, _ := c.Compile(1)
	network, e := at(2000)
	another := e
	another.Key.ID, another.MAC, another.IPv4 = "f", model.MAC{2, 9}, e.IPv4.Next()
	home, mine := at(0)
	mine.Key.ID, mine.MAC, mine.IPv4, mine.Host = "f", model.MAC{2, 9}, mine.IPv4.Next(), "h1"
	for _, change := range []struct {
		name string
		do   func()
		want int
	}{
		{"network", func() { c.SetNetwork(network) }, 1},
		{"its endpoint", func() { c.SetEndpoint(e) }, 1},
		{"another endpoint", func() { c.SetEndpoint(another) }, 1},
		{"network and endpoints gone", func() { c.DeleteNetwork(network.Key) }, 3},
		{"local endpoint", func() { c.SetEndpoint(mine) }, 1},
		{"network with local endpoints gone", func() { c.DeleteNetwork(home.Key) }, 3},
	} {
		change.do()
		after, _ := c.Compile(2)
		if n := diff(before, after); n != change.want {
			t.Errorf("%s: %d objects differ, want %d", change.name, n, change.want)
		}
		before = after
	}
}

// BenchmarkRoutedChange measures one remote endpoint coming and going on a network
// that is not here, of a routed tenant with so many others.
func BenchmarkRoutedChange(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			c := New("h1")
			_, extra := routed(c, n)(1)
			extra.Key.ID, extra.MAC, extra.IPv4 = "f", model.MAC{2, 9}, extra.IPv4.Next()
			comeAndGo(b, c, extra)
		})
	}
}
