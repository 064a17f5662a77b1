package compile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A host has the networks that concern its endpoints' tenants: for an owner the ones that a
// tenant here lists, for clients of a tenant here all. The tiers that keep them apart exist
// as long as the networks are joined.
func TestSharedIsPresent(t *testing.T) {
	c := New("h1")
	routed(c, 1) // blue, with n0 here and n1 on another host
	at := func(tenant model.TenantName, name model.NetworkName, id int) model.NetworkKey {
		k := model.NetworkKey{Tenant: tenant, Name: name}
		_, e := routed(New("h1"), 0)(id)
		n, _ := routed(New("h1"), 0)(id)
		n.Key, e.Key.Network, e.Host = k, k, "h2"
		e.MAC = model.EndpointMAC(k, e.IPv4, e.IPv6)
		c.SetNetwork(n)
		c.SetEndpoint(e)
		return k
	}
	dns := at("infra", "dns", 100)
	at("infra", "inner", 101)
	at("red", "r", 102)
	at("other", "o", 103)
	tenant := func(name model.TenantName, id model.RouterID, shared []model.NetworkKey, clients ...model.TenantName) {
		c.SetTenant(model.Tenant{Name: name, Router: id, Shared: shared, Clients: clients})
	}
	tenant("other", 8, nil)
	n0 := model.NetworkKey{Tenant: "blue", Name: "n0"}
	all := func(id model.RouterID, names ...string) map[string]model.RouterID {
		out := map[string]model.RouterID{}
		for _, n := range names {
			out[n] = id
		}
		return out
	}
	for _, s := range []struct {
		name    string
		do      func()
		want    map[string]model.RouterID
		apart   bool
		problem string
	}{
		{"nothing is shared", func() {}, all(9, "blue:n0", "blue:n1"), false, ""},
		{"as a client", func() {
			tenant("blue", 9, []model.NetworkKey{dns})
			tenant("infra", 7, nil, "blue", "red")
			tenant("red", 6, []model.NetworkKey{dns})
		}, all(model.RouterShared, "blue:n0", "blue:n1", "infra:dns"), true, ""},
		{"mode bridge", func() { c.SetGlobal(model.Global{FwdMode: model.FwdBridge}) }, all(0, "blue:n0"), false, "no effect: networks of other tenants are reached in forwarding mode routing only"},
		{"mode routing", func() { c.SetGlobal(model.Global{FwdMode: model.FwdRouting}) }, all(model.RouterShared, "blue:n0", "blue:n1", "infra:dns"), true, ""},
		{"unknown here", func() { c.DeleteNetwork(dns) }, all(model.RouterShared, "blue:n0", "blue:n1"), true, "infra:dns: not known here, and not reached"},
		{"as an owner", func() {
			tenant("blue", 9, nil, "red")
			tenant("infra", 7, nil)
			tenant("red", 6, []model.NetworkKey{n0})
		}, all(model.RouterShared, "blue:n0", "blue:n1", "red:r"), true, ""},
		{"no longer", func() {
			tenant("blue", 9, nil)
			tenant("red", 6, nil)
		}, all(9, "blue:n0", "blue:n1"), false, ""},
	} {
		s.do()
		pic, problems := c.Compile(1)
		if d := cmp.Diff(s.want, joinedBy(pic)); d != "" {
			t.Errorf("%s: networks (-want +got):\n%s", s.name, d)
		}
		problem := ""
		for _, p := range problems {
			if p.Object == "shared networks of tenant blue" {
				problem = p.Text
			}
		}
		if problem != s.problem {
			t.Errorf("%s: problem %q, want %q", s.name, problem, s.problem)
		}
		for _, p := range pic.Ports.All() {
			set, ok := pic.PolicySets.Get(p.Policies)
			if apart := ok && len(set.In) > 0 && set.In[0].Tier == model.TierTenants; apart != s.apart {
				t.Errorf("%s: the port has tiers that keep tenants apart: %v, want %v", s.name, apart, s.apart)
			}
		}
	}
}

// Clients are let in on the networks that are shared with them, where who is let in by no
// policy is refused, and on no other network of the same tenant.
func TestSharedNetworksLetClientsInByPolicy(t *testing.T) {
	c := New("h1")
	at := routed(c, 0)
	n, e := at(1)
	e.Host = "h1"
	c.SetNetwork(n)
	c.SetEndpoint(e)
	n, e = at(102)
	n.Key.Tenant, e.Key.Network.Tenant = "red", "red"
	c.SetNetwork(n)
	c.SetEndpoint(e)
	c.SetTenant(model.Tenant{Name: "blue", Router: 9, Clients: []model.TenantName{"red"}})
	c.SetTenant(model.Tenant{Name: "red", Router: 6, Shared: []model.NetworkKey{{Tenant: "blue", Name: "n0"}}})
	pic, _ := c.Compile(1)
	seen := map[model.NetworkName]bool{}
	for _, p := range pic.Ports.All() {
		net, _ := pic.Networks.Get(p.Network)
		set, ok := pic.PolicySets.Get(p.Policies)
		if !ok || len(set.In) == 0 {
			t.Fatalf("a port on %s has no tiers", net.Key)
		}
		_, in := set.In[0].Rules.Get("tenants/" + n.Key.String())
		last := set.In[len(set.In)-1]
		shared := net.Key.Name == "n0"
		if in != shared || (last.Tier == model.TierShared) != shared || shared && last.Default != model.Deny {
			t.Errorf("a port on %s: red is let in: %v; the last tier is %+v", net.Key, in, last)
		}
		seen[net.Key.Name] = true
	}
	if len(seen) != 2 {
		t.Errorf("ports are on %v", seen)
	}
}

// An endpoint of another tenant costs itself, and a network of one the sets that let
// it in, whatever else is shared.
func TestSharedChangeIsLocal(t *testing.T) {
	c := New("h1")
	at := routed(c, 300)
	n0 := model.NetworkKey{Tenant: "blue", Name: "n0"}
	var clients []model.TenantName
	for i := range 50 {
		name := model.TenantName(fmt.Sprint("client", i))
		clients = append(clients, name)
		c.SetTenant(model.Tenant{Name: name, Shared: []model.NetworkKey{n0}})
	}
	c.SetTenant(model.Tenant{Name: "blue", Router: 9, Clients: clients})
	n, e := at(1000)
	n.Key.Tenant, e.Key.Network.Tenant = "client7", "client7"
	before, _ := c.Compile(1)
	for _, change := range []struct {
		name string
		do   func()
		want int
	}{
		{"a client's network", func() { c.SetNetwork(n) }, 2}, // and the set of the port that it reaches
		{"its endpoint", func() { c.SetEndpoint(e) }, 1},
		{"the endpoint gone", func() { c.DeleteEndpoint(e.Key) }, 1},
		{"the network gone", func() { c.DeleteNetwork(n.Key) }, 2},
	} {
		change.do()
		after, _ := c.Compile(2)
		if n := diff(before, after); n != change.want {
			t.Errorf("%s: %d objects differ, want %d", change.name, n, change.want)
		}
		before = after
	}
}
