package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// MaxRuleRefs is how many groups and networks one rule may name: each takes
// operations of the one transaction that a change of a rule is. Labels name none.
const MaxRuleRefs = 8

var _ = share(kind{reference: "policy", usedBy: "network policies select by it"})

func policyTargets(p model.Policy) (out []policyTarget) {
	s := p.Applies
	if s.Group != "" {
		out = append(out, groupTarget("group", model.GroupKey{Tenant: s.Tenant, Name: s.Group}))
	}
	if s.Network != "" {
		out = append(out, networkTarget("network", model.NetworkKey{Tenant: s.Tenant, Name: s.Network}))
	}
	return out
}

// ChangeNetworkPolicy creates a network policy, or changes what it says beside
// its rules. The group and the network that its selector names must exist. A
// policy of another kind or owner is model.ErrConflict: a name is taken once in a
// tenant, and what belongs to Kubernetes, only it changes.
func (c *Controller) ChangeNetworkPolicy(valid model.Valid[model.Policy]) Change {
	p := valid.Value()
	ch := changeOf(rankMember, tables.Policies, p.Key, valid, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putPolicy(tx, p)
	})
	if p.Kind != model.KindNetwork {
		ch.bad = cmp.Or(ch.bad, model.InvalidField("kind", p.Kind, "must be "+string(model.KindNetwork)))
	}
	return ch
}

// ChangeNetworkRule creates a rule of a network policy, or replaces it; owner is
// whose policy it is. One with which the policy would not fit a host is
// model.ErrExhausted. In a list it comes after its policy.
func (c *Controller) ChangeNetworkRule(valid model.Valid[model.PolicyRule], owner model.PolicyOwner) Change {
	r := valid.Value()
	ch := changeOf(rankPolicyRule, tables.Rules, r.Key, valid, func(_ context.Context, tx store.Tx, _ *claim) error {
		return putRule(tx, r, model.KindNetwork, owner)
	})
	if n := len(ruleTargets(r)); n > MaxRuleRefs {
		ch.bad = cmp.Or(ch.bad, model.InvalidField("peers", n, fmt.Sprintf("must name at most %d groups and networks: select by labels, or take several rules", MaxRuleRefs)))
	}
	ch.rule = &r
	return ch
}

// DeleteNetworkPolicy deletes a network policy of an owner and its rules.
func (c *Controller) DeleteNetworkPolicy(ctx context.Context, k model.PolicyKey, owner model.PolicyOwner) error {
	return c.deletePolicy(ctx, k, model.KindNetwork, owner)
}

// DeleteNetworkRule deletes a rule of a network policy of an owner.
func (c *Controller) DeleteNetworkRule(ctx context.Context, k model.RuleKey, owner model.PolicyOwner) error {
	return c.deleteRule(ctx, k, model.KindNetwork, owner)
}
