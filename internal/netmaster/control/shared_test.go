package control

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// reaching is a tenant that reaches networks of others; none = an empty list.
func reaching(name model.TenantName, networks ...string) model.Tenant {
	t := model.Tenant{Name: name, Shared: []model.NetworkKey{}}
	for _, n := range networks {
		t.Shared = append(t.Shared, netKey(n))
	}
	return t
}

// checkPlan: the plan has the subnets of all tenants that share networks, and of no
// others; no two overlap; owners know their clients.
func checkPlan(t *testing.T, c *harness, v *View) {
	t.Helper()
	want, clients := map[string]model.NetworkKey{}, map[model.TenantName][]model.TenantName{}
	for _, x := range v.Tenants.List() {
		for _, k := range x.Shared {
			if _, ok := v.Networks.Get(k); !ok {
				t.Errorf("tenant %s reaches the lost network %s", x.Name, k)
			}
			clients[k.Tenant] = append(clients[k.Tenant], x.Name)
		}
		if !x.Shares() {
			continue
		}
		for _, n := range v.Networks.List(x.Name) {
			for _, p := range subnetsOf(n) {
				for o, owner := range want {
					if netip.MustParsePrefix(o).Overlaps(p) {
						t.Errorf("%s of network %s and %s of %s overlap", p, n.Key, o, owner)
					}
				}
				want[p.String()] = n.Key
			}
		}
	}
	for _, x := range v.Tenants.List() {
		if got := slices.Compact(clients[x.Name]); !slices.Equal(got, x.Clients) {
			t.Errorf("networks of tenant %s are reached by %v, and it knows %v", x.Name, got, x.Clients)
		}
	}
	if _, err := c.st.Update(testContext(t), func(tx store.Tx) error {
		row, err := tables.Plans.Find(tx, tables.PlanKey{})
		if diff := cmp.Diff(want, row.Value.Subnets); diff != "" && len(want)+len(row.Value.Subnets) > 0 {
			t.Errorf("the plan (-should be, +is):\n%s", diff)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Tenants share networks in one address plan: an overlap is refused with both names,
// whichever comes first, and changes nothing.
func TestOverlapOfSharedNetworksIsRefused(t *testing.T) {
	c := newCluster(t)
	v6 := func(n model.Network, subnet string) model.Network {
		n.Subnet6 = netip.MustParsePrefix(subnet)
		return n
	}
	c.put(model.Tenant{Name: "infra"}, model.Tenant{Name: "a"}, model.Tenant{Name: "b"}, model.Tenant{Name: "other"},
		network("infra:dns", "10.9.1.0/24"), network("infra:inner", "10.9.2.0/24"), network("infra:x", "10.7.0.0/16"),
		v6(network("a:n", "10.1.1.0/24"), "fd00:1::/64"), network("a:x", "10.9.2.128/25"),
		network("b:n", "10.1.0.0/16"), network("other:n", "10.9.0.0/16"))
	refused := func(kind error, o any, words ...string) {
		t.Helper()
		before := c.dump()
		err := c.try(o)
		if !errors.Is(err, kind) {
			t.Errorf("%+v: %v", o, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q does not say %q", err, w)
			}
		}
		if !maps.Equal(before, c.dump()) {
			t.Errorf("%+v was refused, and has changed something", o)
		}
	}
	refused(model.ErrInvalid, reaching("a", "a:n"))
	refused(model.ErrNotFound, reaching("a", "infra:none"), `"infra:none"`)
	refused(model.ErrNotFound, reaching("a", "none:none"))
	// Not the shared network, but another one of its owner: infra's containers reach both.
	refused(model.ErrConflict, reaching("a", "infra:dns"), "10.9.2.0/24", `"infra:inner"`, "10.9.2.128/25", `"a:x"`)
	c.ok(c.remove(netKey("a:x")))
	c.put(reaching("a", "infra:dns", "infra:x"), model.Tenant{Name: "a"}) // the second says nothing of it
	checkInvariants(t, c)
	refused(model.ErrConflict, reaching("b", "infra:dns"), "10.1.1.0/24", `"a:n"`, "10.1.0.0/16", `"b:n"`)
	refused(model.ErrConflict, network("a:y", "10.9.2.0/25"), `"infra:inner"`)
	refused(model.ErrConflict, network("infra:y", "10.1.1.128/25"), `"a:n"`)
	refused(model.ErrConflict, v6(network("infra:y", "10.8.0.0/24"), "fd00:1::/112"), `"a:n"`)
	refused(model.ErrConflict, reaching("other", "b:n", "infra:x"), "overlap", "3 overlaps")
	c.put(network("b:y", "10.9.2.0/25"), network("other:y", "10.1.1.0/24")) // they share nothing
	c.ok(errors.Join(c.remove(netKey("b:y")), c.remove(netKey("b:n"))))
	c.put(network("b:n", "10.2.0.0/16"), reaching("b", "a:n"))
	checkInvariants(t, c)
	// What is reached stays, and so does its owner.
	if err := c.remove(netKey("infra:dns")); !errors.Is(err, model.ErrInUse) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("a network that a tenant reaches was deleted: %v", err)
	}
	// Who shares nothing any more has left the plan.
	c.put(reaching("a"))
	checkInvariants(t, c)
	if x, _ := c.fresh().Tenants.Get("infra"); x.Shares() {
		t.Errorf("%+v", x)
	}
	c.put(network("infra:y", "10.1.1.128/25"))
	refused(model.ErrConflict, reaching("a", "infra:dns"), `"infra:y"`)
	c.ok(errors.Join(c.remove(netKey("infra:y")), c.remove(netKey("b:n")), c.remove(model.TenantName("b"))))
	checkInvariants(t, c)
	if x, _ := c.fresh().Tenants.Get("a"); x.Shares() {
		t.Errorf("the client is gone: %+v", x)
	}
	// From one owner to another, whose networks overlap.
	c.ok(c.remove(netKey("other:y")))
	c.put(reaching("a", "infra:dns"), reaching("a", "other:n"))
	checkInvariants(t, c)
	// In one list with what it needs.
	ctx := testContext(t)
	var changes []Change
	for _, o := range []model.Tenant{reaching("late", "owner:n"), {Name: "owner"}} {
		changes = append(changes, ChangeTenant(valid(o), false))
	}
	changes = append(changes, c.Networks.ChangeNetwork(valid(network("owner:n", "10.3.0.0/16"))))
	if _, _, _, err := c.Apply(ctx, Admin(), changes, false, nil); err != nil {
		t.Error(err)
	}
	checkInvariants(t, c)
}

// Networks are created and shared at once, through several replicas: the plan holds what it
// should after each round.
func TestConcurrentSharingKeepsThePlan(t *testing.T) {
	cs := replicas(t, 2)
	for round := range 10 {
		cs[0].put(model.Tenant{Name: "a"}, model.Tenant{Name: "b"}, model.Tenant{Name: "c"}, network("b:s", "10.5.0.0/24"), network("c:s", "10.6.0.0/24"))
		outcomesOf(t, parallel(16, func(i int) error {
			c := cs[i%2]
			switch (i + round) % 8 {
			case 0:
				return c.try(reaching("a", "b:s"))
			case 1:
				return c.try(reaching("a", "c:s"))
			case 2:
				return c.try(network("a:n", "10.1.0.0/16"))
			case 3:
				return c.try(network("b:n", "10.1.1.0/24"))
			case 4:
				return c.try(network("c:n", "10.1.1.0/24"))
			case 5:
				return c.remove(netKey("a:n"))
			case 6:
				return c.try(reaching("c", "b:s"))
			}
			return c.remove(netKey("b:s"))
		}))
		checkInvariants(t, cs[round%2])
		for _, name := range []model.TenantName{"a", "c"} {
			cs[0].put(reaching(name))
		}
		for _, n := range []string{"a:n", "b:n", "c:n"} {
			_ = cs[0].remove(netKey(n))
		}
	}
}
