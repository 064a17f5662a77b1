package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// MaxRuleRefs is how many groups and networks one rule may name: each takes
// operations of the one transaction that a change of a rule is. Labels name none.
const MaxRuleRefs = 8

var _ = share(kind{name: "networkPolicy", reference: "policy", usedBy: "network policies select by it"})

func policyTargets(p model.Policy) (out []policyTarget) {
	s := p.Applies
	if s.Group != "" {
		out = append(out, groupTarget("applies.group", model.GroupKey{Tenant: s.Tenant, Name: s.Group}))
	}
	if s.Network != "" {
		out = append(out, networkTarget("applies.network", model.NetworkKey{Tenant: s.Tenant, Name: s.Network}))
	}
	return out
}

// ChangeNetworkPolicy creates a network policy, or changes what it says beside
// its rules. The group and the network that its selector names must exist. A
// policy of another kind or owner is model.ErrConflict: a name is taken once in a
// tenant, and what belongs to Kubernetes, only it changes.
func (ps *Policies) ChangeNetworkPolicy(valid model.Valid[model.Policy]) Change {
	p := valid.Value()
	ch := changeOf(rankMember, tables.Policies, p.Key, valid, func(_ context.Context, tx store.Tx, cl *allocator) error {
		if err := cl.actor.mayWriteTier(tx, p.Key, p.Tier); err != nil {
			return err
		}
		return ps.putPolicy(tx, p)
	})
	if p.Kind != model.KindNetwork {
		ch.bad = cmp.Or(ch.bad, model.InvalidField("kind", p.Kind, "must be "+string(model.KindNetwork)))
	}
	return ch
}

// ChangeNetworkRule creates a rule of a network policy, or replaces it; owner is
// whose policy it is. One with which the policy would not fit a host is
// model.ErrExhausted. In a list it comes after its policy.
func (ps *Policies) ChangeNetworkRule(valid model.Valid[model.PolicyRule], owner model.PolicyOwner) Change {
	r := valid.Value()
	ch := changeOf(rankPolicyRule, tables.Rules, r.Key, valid, func(_ context.Context, tx store.Tx, cl *allocator) error {
		if err := cl.actor.mayWriteTier(tx, r.Key.PolicyKey(), 0); err != nil {
			return err
		}
		if n := ps.policyView.otherRules(r.Key); n >= model.MaxNetworkPolicyRules {
			return model.Errorf(model.ErrExhausted, "policy %q has %d rules already; at most %d are allowed; several policies can have one order", r.Key.PolicyKey(), n, model.MaxNetworkPolicyRules)
		}
		return ps.putRule(tx, r, model.KindNetwork, owner, "")
	})
	ch.bad = cmp.Or(ch.bad, tooManyNames(r))
	ch.rules, ch.serialized = []model.PolicyRule{r}, []string{tables.Policies.Key(r.Key.PolicyKey())}
	return ch
}

// touchPolicy writes the row of a network policy whose rules change, so that the row's
// revision is the whole policy's.
func touchPolicy(tx store.Tx, k model.PolicyKey) error {
	p, err := tables.Policies.Get(tx, k)
	if err != nil {
		return err
	}
	return tables.Policies.Put(tx, p)
}

// tooManyNames refuses a rule that names more groups and networks than it may.
func tooManyNames(r model.PolicyRule) error {
	if n := len(ruleTargets(r)); n > MaxRuleRefs {
		return model.InvalidField("peers", n, fmt.Sprintf("must name at most %d groups and networks: select by labels, or take several rules", MaxRuleRefs))
	}
	return nil
}

// DeleteNetworkPolicy deletes a network policy of an owner and its rules.
func DeleteNetworkPolicy(k model.PolicyKey, owner model.PolicyOwner) Deletion {
	return deletePolicy(k, model.KindNetwork, owner)
}

// DeleteNetworkRule deletes a rule of a network policy of an owner. The last rule of a policy
// without defaults is model.ErrConflict.
func (ps *Policies) DeleteNetworkRule(k model.RuleKey, owner model.PolicyOwner) Deletion {
	d := ps.deleteRule(k, model.KindNetwork, owner)
	d.turns = []string{tables.Policies.Key(k.PolicyKey())}
	return d
}

// checkRulesRemain touches the network policy of a rule that goes, and refuses to leave a policy
// that says nothing.
func (ps *Policies) checkRulesRemain(tx store.Tx, gone model.RuleKey) error {
	k := gone.PolicyKey()
	p, err := tables.Policies.Get(tx, k)
	if err != nil {
		return err
	}
	if !p.Default.Decides() {
		// One rule of the view is enough: to look for any costs the store as much as there are.
		other, err := tables.Rules.Find(tx, ps.policyView.siblingRule(gone))
		if err != nil {
			return err
		}
		more := other.Exists()
		if !more {
			if _, more, err = tables.Rules.Any(tx, tables.RulesOf(k)); err != nil {
				return err
			}
		}
		if !more {
			return model.Errorf(model.ErrConflict, "it is the last rule of policy %q, whose defaultIn and defaultOut neither allow nor deny: delete the policy instead", k)
		}
	}
	return tables.Policies.Put(tx, p)
}

// ReplaceNetworkPolicy creates a network policy with its rules, or makes an existing one
// and all of its rules what they are here. Data planes see the change at once, however many
// rules there are. Its errors are those of ChangeNetworkPolicy and ChangeNetworkRule.
func (ps *Policies) ReplaceNetworkPolicy(valid model.Valid[model.NetworkPolicy]) Change {
	n := valid.Value()
	ch := changeOf(rankMember, tables.Policies, n.Policy.Key, valid, func(_ context.Context, tx store.Tx, cl *allocator) error {
		if err := cl.actor.mayWriteTier(tx, n.Policy.Key, n.Policy.Tier); err != nil {
			return err
		}
		return ps.replacePolicy(tx, cl, n)
	})
	for i, r := range n.Rules {
		if err := tooManyNames(r); err != nil && ch.bad == nil {
			ch.bad = model.InField(fmt.Sprintf("rules[%d]", i), err)
		}
	}
	header := ch.read
	ch.read = func(tx store.Tx) (any, bool, error) {
		row, ok, err := header(tx)
		if err != nil || !ok {
			return nil, false, err
		}
		p, _ := row.(model.Policy)
		rules, err := rulesInForce(tx, p.Key)
		model.SortRules(rules)
		return model.NetworkPolicy{Policy: p, Rules: rules}, p.Kind == model.KindNetwork, err
	}
	ch.rules, ch.replaces = n.Rules, &n.Policy.Key
	ch.alone = func(ctx context.Context, u *usecase) (any, error) {
		sorted := model.NetworkPolicy{Policy: n.Policy, Rules: slices.Clone(n.Rules)}
		model.SortRules(sorted.Rules)
		return sorted, ps.replaceStaged(ctx, u, n)
	}
	return ch
}

func (ps *Policies) replacePolicy(tx store.Tx, cl *allocator, n model.NetworkPolicy) error {
	k := n.Policy.Key
	if err := ps.putPolicy(tx, n.Policy); err != nil {
		return err
	}
	if err := checkNoReplacement(tx, k); err != nil {
		return err
	}
	before, err := tables.Rules.List(tx, tables.RulesOf(k))
	if err != nil {
		return err
	}
	changed := differences(before, n.Rules)
	if len(changed) > maxRulesPerApply && cl.commits { // that fails in the end: at once
		return model.Errorf(store.ErrTooLarge, "%d rules change", len(changed))
	}
	if len(changed) > 0 {
		if err := touchPolicy(tx, k); err != nil {
			return err
		}
	}
	var keys []string
	for _, s := range changed {
		keys = append(keys, tables.Rules.Key(s.Key))
	}
	if err := tx.Prefetch(keys...); err != nil { // one round trip, not one a rule
		return err
	}
	for _, s := range changed {
		if s.Rule == nil {
			old, err := tables.Rules.Find(tx, s.Key)
			if err != nil {
				return err
			}
			dropRule(tx, old.Value)
			continue
		}
		if err := ps.putRule(tx, *s.Rule, n.Policy.Kind, n.Policy.Owner, s.field); err != nil {
			return err
		}
	}
	return nil
}
