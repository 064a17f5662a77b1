package control

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestLargestWritesStayBelowConsulsLimits makes the largest legal form of every use-case on a store that
// takes no more than Consul: 64 operations a transaction.
func TestLargestWritesStayBelowConsulsLimits(t *testing.T) {
	c := onStore(t, memory.NewWith(memory.Consul))
	ctx := testContext(t)
	worst, what := 0, ""
	step := func(name string, do func() error) {
		t.Helper()
		c.st.Largest()
		err := do()
		n := c.st.Largest()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%2d operations: %s", n, name)
		if n > worst {
			worst, what = n, name
		}
	}
	put := func(name string, o any) {
		t.Helper()
		step("put "+name, func() error { return c.try(o) })
	}
	remove := func(name string, k any) {
		t.Helper()
		step("delete "+name, func() error { return c.remove(k) })
	}
	c.ok(c.hosts("host1"))

	put("tenant", model.Tenant{Name: "blue"})
	put("network of two families", network("blue:net", "10.1.0.0/16", "fd00::/64"))
	put("wide network", network("blue:wide", "12.0.0.0/8", "fc00::/40"))
	put("tenant's default network", model.Tenant{Name: "blue", DefaultNetwork: "net"})
	put("aciGw", model.AciGw{PhysicalDomain: "dom"})
	put("bgp", model.Bgp{Host: "host1", AS: 1, NeighborAS: 2, RouterIP: netip.MustParsePrefix("10.9.0.1/24")})

	// A group with everything that it may name, twice.
	names := func(set string) (g model.Group) {
		g = pooled("blue:large", "net", "10.1.1.1-10.1.1.99")
		g.NetProfile = "np" + set
		put("net profile", model.NetProfile{Key: model.NetProfileKey{Tenant: "blue", Name: g.NetProfile}, DSCP: 1})
		for i := range model.MaxGroupPolicies {
			p := fmt.Sprintf("p%s%d", set, i)
			c.put(policy("blue:" + p))
			g.Policies = append(g.Policies, model.PolicyName(p))
		}
		for i := range model.MaxGroupRefs - model.MaxGroupPolicies {
			e := fmt.Sprintf("e%s%d", set, i)
			put("external contracts", model.ExtContracts{Key: model.ExtContractsKey{Tenant: "blue", Name: e}, Type: model.ContractsProvided})
			g.ExtContracts = append(g.ExtContracts, e)
		}
		return g
	}
	first, second := names("x"), names("y")
	put("group with all references and a pool", first)
	put("group with all references changed", second)
	put("group with none left", model.Group{Key: second.Key, Network: second.Network})
	put("group with all references back", first)

	put("rule with a group", rule("blue:px0", "1", func(r *model.Rule) { r.Group = "large" }))
	put("rule with a network", rule("blue:px0", "2", func(r *model.Rule) { r.Network = "net" }))
	// A network policy whose rules are far more than a transaction takes, twice, and
	// name as many groups as they may.
	full := func(set string) model.NetworkPolicy {
		k := policyKey("blue:full")
		n := model.NetworkPolicy{Policy: model.Policy{
			Key: k, Kind: model.KindNetwork, Owner: model.OwnerUser, Tier: model.TierContiv, Order: model.OrderContiv,
			Applies: model.Selector{Tenant: "blue", Group: model.GroupName("g" + set), MatchLabels: map[string]string{"app": set}},
		}}
		put("group", group("blue:g"+set, "wide"))
		for i := range 300 {
			r := model.PolicyRule{
				Key: model.RuleKey{Tenant: "blue", Policy: k.Name, Rule: model.RuleID(fmt.Sprintf("%s%d", set, i))}, Direction: model.In, Priority: 1, Action: model.Allow,
			}
			for j := range MaxRuleRefs {
				g := fmt.Sprintf("n%s%d", set, j)
				if i == 0 {
					put("group", group("blue:"+g, "wide"))
				}
				if i < 20 {
					r.Peers = append(r.Peers, model.Peer{Selector: &model.Selector{Tenant: "blue", Group: model.GroupName(g)}})
				}
			}
			n.Rules = append(n.Rules, r)
		}
		return n
	}
	put("network policy with all rules", full("x"))
	put("network policy with all rules changed", full("y"))
	step("delete network policy", func() error {
		return err2(c.Delete(ctx, Admin(), DeleteNetworkPolicy(policyKey("blue:full"), model.OwnerUser)))
	})
	for _, set := range []string{"x", "y"} {
		c.ok(c.remove(groupKey("blue:g" + set)))
		for i := range MaxRuleRefs {
			c.ok(c.remove(groupKey(fmt.Sprintf("blue:n%s%d", set, i))))
		}
	}
	free := policyKey("blue:many")
	put("policy", model.ContivPolicy{Key: free})
	for i := range 2 * maxRefDeletes {
		c.put(rule("blue:many", strconv.Itoa(i), func(r *model.Rule) { r.Group, r.Priority = "large", 1+i }))
	}
	remove("policy whose rules refer to groups", free)

	var groups []model.GroupName
	for i := range 3 * appBatch {
		g := model.GroupName(fmt.Sprintf("g%d", i))
		c.put(group("blue:"+string(g), "net"))
		groups = append(groups, g)
	}
	app := model.AppProfile{Key: model.AppProfileKey{Tenant: "blue", Name: "app"}, Groups: groups}
	put("app profile of many groups", app)
	app.Groups = groups[:1]
	put("app profile of few of them", app)
	app.Groups = groups[appBatch : 2*appBatch]
	put("app profile of others", app)
	remove("app profile", app.Key)

	svc := service("blue:s", "net", "10.1.2.1", "a=b", "c=d")
	put("service", svc)
	svc.ReqAddr = addr("10.1.2.2")
	put("service at another address", svc)
	remove("service", model.ServiceKey{Tenant: "blue", Name: "s"})

	for i := range 3 * batch {
		put("endpoint with labels, a MAC and both families", endpoint("blue:net", fmt.Sprint("c", i), func(e *model.Endpoint) {
			e.Group, e.MAC, e.Labels = "large", model.MAC{0x0a, 0, 0, 0, 0, byte(i)}, map[string]string{"n": strconv.Itoa(i)}
		}))
	}
	put("reservation", AddressRequest{Network: netKey("blue:net"), Preferred: addr("10.1.3.1"), Host: "host1"})
	step("update endpoint", func() error {
		return err2(c.Endpoints.UpdateEndpoint(ctx, Admin(), EndpointUpdate{Key: endpoint("blue:net", "c0").Key, Name: "other", Labels: map[string]string{"m": "1"}}))
	})
	remove("endpoint", endpoint("blue:net", "c0").Key)
	c.fresh()
	step("delete all endpoints of a group", func() error {
		_, _, err := c.Endpoints.DeleteEndpointsOfGroup(ctx, Admin(), groupKey("blue:large"))
		return err
	})
	c.clock.advance(1000 * time.Hour)
	fence := c.leader()
	step("sweep twice", func() error {
		c.fresh()
		if err := c.Repair.SweepOnce(ctx, fence); err != nil {
			return err
		}
		c.fresh()
		return c.Repair.SweepOnce(ctx, fence)
	})
	step("sweep generations", func() error {
		_, err := c.Repair.sweepGenerations(ctx, fence, store.Revision(1)<<60)
		return err
	})

	var list []Change
	for i := range 60 { // as large as they get, in one list
		n := fmt.Sprintf("apply%d", i)
		list = append(list, c.Networks.ChangeNetwork(valid(network("blue:"+n, fmt.Sprintf("11.%d.0.0/16", i), fmt.Sprintf("fd01:%x::/64", i)))),
			c.Tenants.ChangeGroup(valid(group("blue:group-of-"+n, n, second.Policies...)), false))
	}
	step("apply a long list", func() error {
		_, done, _, err := c.Apply(ctx, Admin(), list, false, func() bool { return true })
		if err == nil && done != len(list) {
			err = fmt.Errorf("%d of %d are done", done, len(list))
		}
		return err
	})

	for _, k := range []any{
		model.RuleKey{Tenant: "blue", Policy: "px0", Rule: "1"},
		model.RuleKey{Tenant: "blue", Policy: "px0", Rule: "2"},
		first.Key,
	} {
		remove(fmt.Sprintf("%T", k), k)
	}
	for _, g := range groups {
		c.ok(c.remove(model.GroupKey{Tenant: "blue", Name: g}))
	}
	for i := range 60 {
		n := fmt.Sprintf("blue:apply%d", i)
		c.ok(c.remove(groupKey(fmt.Sprintf("blue:group-of-apply%d", i))))
		c.ok(c.remove(netKey(n)))
	}
	remove("network of two families", netKey("blue:net"))
	remove("wide network", netKey("blue:wide"))
	for _, g := range []model.Group{first, second} {
		for _, p := range g.Policies {
			remove("policy", model.PolicyKey{Tenant: "blue", Name: p})
		}
		for _, e := range g.ExtContracts {
			remove("external contracts", model.ExtContractsKey{Tenant: "blue", Name: e})
		}
		remove("net profile", model.NetProfileKey{Tenant: "blue", Name: g.NetProfile})
	}
	remove("bgp", tables.BgpKey{Host: "host1"})
	remove("aciGw", tables.AciGwKey{})
	remove("tenant", model.TenantName("blue"))
	remove("global", tables.GlobalKey{})
	put("global", model.Global{VLANs: model.TagRange{Lo: 10, Hi: 20}, VXLANs: model.TagRange{Lo: 10, Hi: 20}, FwdMode: model.FwdRouting})
	step("remove host", func() error { _, _, err := c.Hosts.RemoveHost(ctx, Admin(), "host1", true); return err })
	t.Logf("the worst, with %d operations: %s", worst, what)
	if worst > store.MinOps {
		t.Errorf("%s takes %d operations", what, worst)
	}
}

func (c *harness) hosts(names ...model.HostName) error {
	_, err := c.st.Update(context.Background(), func(tx store.Tx) error {
		for _, n := range names {
			if err := tables.Hosts.Put(tx, model.Host{Name: n, VTEP: addr("10.9.0.1")}); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}
