package control

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// deleteNetworkRule deletes a rule of the policy of manyRules.
func (c *harness) deleteNetworkRule(p model.PolicyKey, id string) error {
	return err2(c.Delete(testContext(c.t), Admin(), c.Policies.DeleteNetworkRule(model.RuleKey{Tenant: p.Tenant, Policy: p.Name, Rule: model.RuleID(id)}, model.OwnerUser)))
}

func (c *harness) replace(p model.NetworkPolicy) error {
	_, err := c.Put(testContext(c.t), Admin(), c.Policies.ReplaceNetworkPolicy(valid(p)))
	return err
}

// TestRuleChangesRevisionOfItsPolicy: whatever changes rules of a network policy changes the
// policy's revision, and what changes nothing does not.
func TestRuleChangesRevisionOfItsPolicy(t *testing.T) {
	c := newCluster(t)
	p := manyRules(3, 1)
	k := p.Policy.Key
	extra := p.Rules[0]
	extra.Key.Rule = "extra"
	changed := extra
	changed.Action = model.Deny
	with := p
	with.Rules = append(with.Rules[:3:3], changed)
	var last store.Revision
	for _, step := range []struct {
		name  string
		do    func() error
		moves bool
	}{
		{"create the policy", func() error { return c.replace(p) }, true},
		{"write it again", func() error { return c.replace(p) }, false},
		{"add a rule", func() error { return c.putNetworkRule(extra, model.OwnerUser) }, true},
		{"add it again", func() error { return c.putNetworkRule(extra, model.OwnerUser) }, false},
		{"change a rule", func() error { return c.putNetworkRule(changed, model.OwnerUser) }, true},
		{"write what is there", func() error { return c.replace(with) }, false},
		{"delete a rule", func() error { return c.deleteNetworkRule(k, "extra") }, true},
		{"replace one rule", func() error { return c.replace(manyRules(3, 2)) }, true},
		{"replace more than a transaction takes", func() error { return c.replace(manyRules(3000, 1)) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		now := c.fresh().Revisions.Written("networkPolicy", k.String())
		if (now != last) != step.moves {
			t.Errorf("%s: revision %d, before %d", step.name, now, last)
		}
		last = now
	}
}

// TestLastRuleStaysInPolicyWithoutDefaults: of two who delete the last two rules of a policy
// that says nothing without rules, one is refused.
func TestLastRuleStaysInPolicyWithoutDefaults(t *testing.T) {
	c := newCluster(t)
	p := manyRules(2, 1)
	p.Policy.Default = model.Defaults{}
	k := p.Policy.Key
	c.ok(c.replace(p))
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			errs[i] = err2(c.Delete(testContext(t), Admin(), c.Policies.deleteRule(p.Rules[i].Key, model.KindNetwork, model.OwnerUser))) // past this process' turns
		})
	}
	wg.Wait()
	err := errors.Join(errs...)
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(err, model.ErrConflict) || !strings.Contains(err.Error(), "delete the policy instead") {
		t.Errorf("errors %v", errs)
	}
	if n := len(c.fresh().Policies.AnyRulesOf(k)); n != 1 {
		t.Errorf("%d rules are left", n)
	}
	c.ok(err2(c.Delete(testContext(t), Admin(), DeleteNetworkPolicy(k, model.OwnerUser))))
}

// TestRulesOfPolicyAreCounted: one rule more than a policy may have is refused, and a change
// of one that is there is not.
func TestRulesOfPolicyAreCounted(t *testing.T) {
	c := newCluster(t)
	p := manyRules(model.MaxNetworkPolicyRules, 1)
	c.ok(c.replace(p))
	c.fresh()
	more := p.Rules[0]
	more.Key.Rule = "one-more"
	if err := c.putNetworkRule(more, model.OwnerUser); !errors.Is(err, model.ErrExhausted) || !strings.Contains(err.Error(), strconv.Itoa(model.MaxNetworkPolicyRules)) {
		t.Errorf("one more: %v", err)
	}
	other := p.Rules[0]
	other.Action = model.Deny
	c.ok(c.putNetworkRule(other, model.OwnerUser))
}

// TestConditionHoldsToTheCommit: a condition is refused by whatever comes between it and the
// commit, on the policy as a whole, however large it is, and for deletions.
func TestConditionHoldsToTheCommit(t *testing.T) {
	c := newCluster(t)
	k := manyRules(1, 1).Policy.Key
	at := func() *Condition {
		v := c.fresh()
		return v.Revisions.OnlyAt("networkPolicy", k.String(), int64(v.Revisions.Written("networkPolicy", k.String())))
	}
	put := func(only *Condition, p model.NetworkPolicy) error {
		_, err := c.Put(testContext(t), Admin(), c.Policies.ReplaceNetworkPolicy(valid(p)).OnlyAt(only))
		return err
	}
	remove := func(only *Condition) error {
		return err2(c.Delete(testContext(t), Admin(), DeleteNetworkPolicy(k, model.OwnerUser).OnlyAt(only)))
	}
	if err := put(at(), manyRules(2, 1)); !errors.Is(err, ErrChanged) {
		t.Errorf("of a policy that is not there: %v", err)
	}
	c.ok(c.replace(manyRules(2, 1)))
	c.ok(put(at(), manyRules(3000, 1)))
	extra := manyRules(1, 1).Rules[0]
	extra.Key.Rule = "extra"
	for name, do := range map[string]func(*Condition) error{
		"a few rules":  func(only *Condition) error { return put(only, manyRules(3000, 1)) },
		"many rules":   func(only *Condition) error { return put(only, manyRules(3, 2)) },
		"the deletion": remove,
	} {
		only := at()
		extra.Priority++
		c.ok(c.putNetworkRule(extra, model.OwnerUser))
		if err := do(only); !errors.Is(err, ErrChanged) {
			t.Errorf("%s after a change of one rule: %v", name, err)
		}
	}
	if n := len(c.fresh().Policies.AnyRulesOf(k)); n != 3001 {
		t.Errorf("%d rules", n)
	}
	c.ok(remove(at()))
}
