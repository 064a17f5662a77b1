package control

import "github.com/contiv/netplugin/v2/internal/model"

// Policies returns the Contiv policies of a tenant, "" = of all.
func (v *View) Policies(t model.TenantName) []model.ContivPolicy {
	return contivPolicies(read(v, func() []model.Policy { return v.policies.list(t) }))
}

// Policy finds a Contiv policy.
func (v *View) Policy(k model.PolicyKey) (model.ContivPolicy, bool) {
	p, ok := v.AnyPolicy(k)
	out, contiv := p.Contiv()
	return out, ok && contiv
}

// AnyPolicies returns all policies of a tenant, of whatever kind; "" = of all.
func (v *View) AnyPolicies(t model.TenantName) []model.Policy {
	return read(v, func() []model.Policy { return v.policies.list(t) })
}

// AnyPolicy finds a policy of whatever kind.
func (v *View) AnyPolicy(k model.PolicyKey) (model.Policy, bool) {
	return find(v, func() map[model.PolicyKey]model.Policy { return v.policies.all }, k)
}

// Rules returns the rules of a tenant's Contiv policies, "" = of all.
func (v *View) Rules(t model.TenantName) []model.Rule {
	return v.contivRules(func() []model.PolicyRule { return v.rules.list(t) })
}

// Rule finds a rule of a Contiv policy.
func (v *View) Rule(k model.RuleKey) (model.Rule, bool) {
	list := v.contivRules(func() []model.PolicyRule {
		if r, ok := v.rules.all[k]; ok {
			return []model.PolicyRule{r}
		}
		return nil
	})
	if len(list) == 0 {
		return model.Rule{}, false
	}
	return list[0], true
}

// RulesOfPolicy returns a Contiv policy's rules.
func (v *View) RulesOfPolicy(k model.PolicyKey) []model.Rule {
	return v.contivRules(func() []model.PolicyRule { return sorted(v.rulesOfPolicy[k], v.rules.all, lessRule) })
}

// RulesOfGroup returns the rules of Contiv policies that name a group as their peer.
func (v *View) RulesOfGroup(k model.GroupKey) []model.Rule {
	return v.contivRules(func() []model.PolicyRule { return sorted(v.rulesOfGroup[k], v.rules.all, lessRule) })
}

// AnyRulesOf returns the rules of a policy of whatever kind.
func (v *View) AnyRulesOf(k model.PolicyKey) []model.PolicyRule {
	return read(v, func() []model.PolicyRule { return sorted(v.rulesOfPolicy[k], v.rules.all, lessRule) })
}

func contivPolicies(all []model.Policy) []model.ContivPolicy {
	out := make([]model.ContivPolicy, 0, len(all))
	for _, p := range all {
		if c, ok := p.Contiv(); ok {
			out = append(out, c)
		}
	}
	return out
}

// contivRules translates what list finds under the view's lock, but for rules
// of other policies.
func (v *View) contivRules(list func() []model.PolicyRule) []model.Rule {
	return read(v, func() []model.Rule {
		all := list()
		out := make([]model.Rule, 0, len(all))
		for _, r := range all {
			if p, ok := v.policies.all[r.Key.PolicyKey()]; ok && p.Kind != model.KindContiv {
				continue
			}
			if c, ok := r.Contiv(); ok {
				out = append(out, c)
			}
		}
		return out
	})
}
