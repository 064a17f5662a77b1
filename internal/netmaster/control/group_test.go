package control

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// A group's policies, net profile and contracts change while it has endpoints,
// and the view's links follow.
func TestGroupChangesWhileItHasEndpoints(t *testing.T) {
	c := more(t)
	c.put(with(group("web", "v1", "p2"), func(g *model.Group) { g.NetProfile, g.ExtContracts = "free", []string{"ec2"} }))
	v := c.fresh()
	for name, got := range map[string]int{
		"p1": len(v.Groups.OfPolicy(policyKey("p1"))), "np": len(v.Groups.OfNetProfile(npKey("np"))), "ec": len(v.Groups.OfExtContracts(ecKey("ec"))),
	} {
		if got != 0 {
			t.Errorf("%s still has %d groups", name, got)
		}
	}
	if len(v.Groups.OfPolicy(policyKey("p2"))) != 1 || len(v.Groups.OfNetProfile(npKey("free"))) != 1 || len(v.Groups.OfExtContracts(ecKey("ec2"))) != 1 {
		t.Error("what the group names now does not have it")
	}
	c.ok(c.remove(npKey("np")))
	c.ok(c.remove(ecKey("ec")))
	c.refused(model.ErrInUse, "default:web", func() error { return c.remove(npKey("free")) })
	checkKinds(t, c)
}

// The largest group fits one transaction: when it is created, when all that it
// names changes at once, and when it is deleted.
func TestLargestGroupIsOneTransaction(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"))
	g := pooled("g", "n", "10.1.1.1-10.1.1.9")
	other := g
	for i := range model.MaxGroupPolicies {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		c.put(policy(a), policy(b))
		g.Policies, other.Policies = append(g.Policies, model.PolicyName(a)), append(other.Policies, model.PolicyName(b))
	}
	for i := range model.MaxGroupRefs - model.MaxGroupPolicies {
		a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
		c.put(contracts(a), contracts(b))
		g.ExtContracts, other.ExtContracts = append(g.ExtContracts, a), append(other.ExtContracts, b)
	}
	c.put(model.NetProfile{Key: npKey("a")}, model.NetProfile{Key: npKey("b")})
	g.NetProfile, other.NetProfile = "a", "b"
	before := c.contents()
	c.put(g)
	c.put(other)
	checkKinds(t, c)
	c.ok(c.remove(groupKey("g")))
	if d := cmp.Diff(before, c.contents()); d != "" {
		t.Errorf("something is left: %s", d)
	}
}
