package control

import (
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// largest is a group on a network that names as much as it may, of a set of policies and
// external contracts that it makes.
func largest(c *harness, name, network, set string, policies int) model.Group {
	c.t.Helper()
	g := pooled(name, network, "10.1.1.1-10.1.1.99")
	for i := range policies {
		p := fmt.Sprintf("p%s%d", set, i)
		c.put(policy(p))
		g.Policies = append(g.Policies, model.PolicyName(p))
	}
	for i := range model.MaxGroupRefs - policies {
		e := fmt.Sprintf("e%s%d", set, i)
		c.put(contracts(e))
		g.ExtContracts = append(g.ExtContracts, e)
	}
	g.NetProfile = "np" + set
	c.put(model.NetProfile{Key: npKey(g.NetProfile)})
	return g
}

// TestLargestACIWritesStayBelowConsulsLimits: with infrastructure type aci, where a group takes a VLAN and a
// segment's number besides, the largest one is made, changed and deleted on a store that
// takes no more than Consul.
func TestLargestACIWritesStayBelowConsulsLimits(t *testing.T) {
	c := onStore(t, memory.NewWith(memory.Consul))
	c.put(model.Tenant{Name: "default"}, model.Global{Infra: model.InfraACI}, with(network("n", "10.1.0.0/16", "fd00::/64"), func(n *model.Network) { n.Encap = model.EncapVLAN }))
	for _, policies := range []int{model.MaxGroupPolicies, 0} {
		first := largest(c, "g", "n", fmt.Sprint("x", policies), policies)
		second := largest(c, "g", "n", fmt.Sprint("y", policies), policies)
		for _, s := range []struct {
			name string
			do   func() error
		}{
			{"made", func() error { return c.try(first) }},
			{"all that it names changed", func() error { return c.try(second) }},
			{"deleted", func() error { return c.remove(first.Key) }},
		} {
			c.st.Largest()
			err := s.do()
			n := c.st.Largest()
			t.Logf("%d operations: %s", n, s.name)
			if err != nil || n > store.MinOps {
				t.Errorf("a group of %d policies, %s: %d operations, %v", policies, s.name, n, err)
			}
			if g, there := c.fresh().Groups.Get(first.Key); there && g.VLAN == 0 {
				t.Error("it has no VLAN")
			}
		}
	}
}

// TestLargeGroupMeetsDeletion: a group that names much touches one scope for all of it;
// who deletes any of that at the same moment sees it nevertheless, whichever is first.
func TestLargeGroupMeetsDeletion(t *testing.T) {
	for name, key := range map[string]func(model.Group) any{
		"policy":             func(g model.Group) any { return model.PolicyKey{Tenant: g.Key.Tenant, Name: g.Policies[0]} },
		"external contracts": func(g model.Group) any { return model.ExtContractsKey{Tenant: g.Key.Tenant, Name: g.ExtContracts[0]} },
		"net profile":        func(g model.Group) any { return npKey(g.NetProfile) },
	} {
		for _, first := range []string{"group", "deletion"} {
			t.Run(name+", first the "+first, func(t *testing.T) {
				b := newCluster(t)
				st := &between{Store: b.st.Client()}
				a := through(t, st, st.Store)
				b.put(network("n", "10.1.0.0/16"))
				g := largest(b, "g", "n", "x", model.MaxGroupPolicies)
				a.fresh()
				var inner error
				hook := func() { inner = b.try(g) }
				outer := func() error { return a.remove(key(g)) }
				if first == "deletion" {
					hook = func() { inner = b.remove(key(g)) }
					outer = func() error { return a.try(g) }
				}
				st.hook.Store(&hook)
				if err := outer(); err == nil || inner != nil {
					t.Errorf("the first: %v; the second: %v", inner, err)
				}
				checkKinds(t, b)
			})
		}
	}
}
