package control

import (
	"errors"
	"fmt"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

func mustBe[T model.Validator](c *harness, v T) model.Valid[T] {
	c.t.Helper()
	valid, err := model.Check(v)
	c.ok(err)
	return valid
}

// TestOnlyTheOwnerChangesAnObject: who makes an object has it; what another has is refused, by a second
// object of Kubernetes, to users and to one whose term is over, and nothing changes;
// with adopt users' objects are taken over, those of others never.
func TestOnlyTheOwnerChangesAnObject(t *testing.T) {
	c := newCluster(t)
	term := c.leader()
	by := term.For
	put := func(a Actor, ch Change) error { return err2(c.Put(testContext(t), a, ch)) }
	tenant := func(a Actor) error { return put(a, ChangeTenant(mustBe(c, model.Tenant{Name: "t"}), false)) }
	has := func(object string) {
		t.Helper()
		got, _ := c.fresh().Tenants.Get("t")
		if got.Object != object {
			t.Errorf("it belongs to %q, want %q", got.Object, object)
		}
	}
	remove := func(a Actor) error {
		return err2(c.Ownership.DeleteOwned(testContext(t), a, model.Owned{Kind: "tenant", Key: "t"}))
	}
	c.ok(tenant(by("a", false)))
	c.ok(tenant(by("a", false))) // again
	has("a")
	c.refused(model.ErrConflict, "already belongs to tenants.contiv.io/a", func() error { return tenant(by("b", true)) })
	c.refused(model.ErrConflict, "does not belong to tenants.contiv.io/b", func() error { return remove(by("b", true)) })
	c.refused(model.ErrConflict, "belongs to Kubernetes", func() error { return err2(c.Delete(testContext(t), Admin(), DeleteTenant("t"))) })
	c.ok(err2(c.Ownership.Release(testContext(t), Admin(), model.Owned{Kind: "tenant", Key: "t"})))
	has("")
	c.refused(model.ErrConflict, "belongs to users", func() error { return tenant(by("b", false)) })
	c.refused(model.ErrConflict, "does not belong to", func() error { return remove(by("a", false)) })
	c.ok(tenant(by("b", true)))
	has("b")
	over := by("b", false)
	c.leader()
	c.refused(store.ErrFenced, "", func() error { return remove(over) })
	c.refused(store.ErrFenced, "", func() error {
		return put(over, ChangeNetProfile(mustBe(c, model.NetProfile{Key: model.NetProfileKey{Tenant: "t", Name: "n"}})))
	})
}

// TestDefaultTenantStaysWithItsObjects: the default tenant, whose object goes, stays.
func TestDefaultTenantStaysWithItsObjects(t *testing.T) {
	c := newCluster(t)
	a := c.leader().For("default", true)
	_, err := c.Put(testContext(t), a, ChangeTenant(mustBe(c, model.Tenant{Name: model.DefaultTenant}), true))
	c.ok(err)
	if all := c.fresh().Ownerships(); len(all) != 1 || all[0].Resource() != "tenants.contiv.io/default" {
		t.Errorf("%v", all)
	}
	c.ok(err2(c.Ownership.DeleteOwned(testContext(t), a, model.Owned{Kind: "tenant", Key: "default"})))
	if got, there := c.fresh().Tenants.Get(model.DefaultTenant); !there || got.Object != "" {
		t.Errorf("%+v, %v", got, there)
	}
}

// TestPolicyRulesAreReplacedAtOnce: all rules at once, with few and with more than a transaction
// takes; of a rule that is refused the text says which of them it is.
func TestPolicyRulesAreReplacedAtOnce(t *testing.T) {
	c := newCluster(t)
	c.put(network("n", "10.1.0.0/16"), group("g", "n"))
	a := c.leader().For("p", false)
	ruled := func(n int, change func(*model.Rule)) model.PolicyWithRules {
		p := model.PolicyWithRules{Policy: policy("p")}
		for i := range n {
			r := rule("p", fmt.Sprint("r", i))
			change(&r)
			p.Rules = append(p.Rules, r)
		}
		return p
	}
	put := func(p model.PolicyWithRules) error {
		_, err := c.Put(testContext(t), a, c.Policies.ReplaceContivPolicy(mustBe(c, p)))
		return err
	}
	none := func(*model.Rule) {}
	for _, n := range []int{0, 3, 1, 300, 2} {
		c.ok(put(ruled(n, none)))
		v := c.fresh()
		p, _ := v.Policies.GetContiv(policyKey("p"))
		if got := len(v.Policies.RulesOfPolicy(p.Key)); got != n || p.Object != "p" {
			t.Errorf("%d rules of %q, want %d of p", got, p.Object, n)
		}
	}
	c.ok(put(ruled(2, func(r *model.Rule) { r.Group = "g"; r.Action = model.Deny }))) // other fields of rules that are there
	if r := c.fresh().Policies.RulesOfPolicy(policyKey("p")); len(r) != 2 || r[0].Group != "g" || r[1].Action != model.Deny {
		t.Errorf("%+v", r)
	}
	c.refused(model.ErrNotFound, `rules[0].fromEndpointGroup "none"`, func() error {
		return put(ruled(1, func(r *model.Rule) { r.Direction, r.Group = model.In, "none" }))
	})
	c.refused(model.ErrConflict, "belongs to Kubernetes", func() error { return c.try(rule("p", "more")) })
	if _, err := model.Check(ruled(model.MaxPolicyRules+1, none)); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("too many rules: %v", err)
	}
	twice := ruled(2, func(r *model.Rule) { r.Key.Rule = "same" })
	if _, err := model.Check(twice); !errors.Is(err, model.ErrInvalid) {
		t.Errorf("a rule twice: %v", err)
	}
	c.ok(err2(c.Ownership.DeleteOwned(testContext(t), a, model.Owned{Kind: "policy", Key: "default:p"})))
}
