package control

import (
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PolicyView is the View's part with policies of all kinds and their rules, and with what
// these take of hosts.
type PolicyView struct {
	groups     *GroupView
	identities *IdentityView
	hosts      *HostView

	mu              *sync.RWMutex // the View's
	policyRows      *rows[model.PolicyKey, model.Policy]
	ruleRows        *rows[model.RuleKey, model.PolicyRule]
	rulesOfPolicy   index[model.PolicyKey, model.RuleKey]
	rulesOfGroup    index[model.GroupKey, model.RuleKey] // that name the group
	policySizes     *sizes
	replacementRows map[model.PolicyKey]tables.Replacement
	rules           *tables.InForce
}

func newPolicyView(mu *sync.RWMutex, groups *GroupView, identities *IdentityView, hosts *HostView) *PolicyView {
	pv := &PolicyView{mu: mu, groups: groups, identities: identities, hosts: hosts}
	pv.policyRows = newRows[model.PolicyKey, model.Policy](mu, func(k model.PolicyKey) model.TenantName { return k.Tenant }, lessPolicy)
	pv.ruleRows = newRows[model.RuleKey, model.PolicyRule](mu, func(k model.RuleKey) model.TenantName { return k.Tenant }, lessRule)
	pv.reset()
	return pv
}

func (pv *PolicyView) reset() {
	pv.policyRows.reset()
	pv.replacementRows = map[model.PolicyKey]tables.Replacement{}
	pv.ruleRows.reset()
	pv.rulesOfPolicy = index[model.PolicyKey, model.RuleKey]{}
	pv.rulesOfGroup = index[model.GroupKey, model.RuleKey]{}
	pv.policySizes = &sizes{map[model.PolicyKey]ruleSum{}, map[model.PolicyKey]map[policyUnion]int{}, map[policyUnion]*model.PolicyMeter{}, map[model.PolicyKey]*model.FlowMeter{}}
	pv.rules = tables.NewInForce()
}

// ListContiv returns the Contiv policies of a tenant, "" = of all.
func (pv *PolicyView) ListContiv(t model.TenantName) []model.ContivPolicy {
	return contivPolicies(pv.policyRows.list(t))
}

// GetContiv finds a Contiv policy.
func (pv *PolicyView) GetContiv(k model.PolicyKey) (model.ContivPolicy, bool) {
	p, ok := pv.Get(k)
	out, contiv := p.Contiv()
	return out, ok && contiv
}

// List returns all policies of a tenant, of whatever kind; "" = of all.
func (pv *PolicyView) List(t model.TenantName) []model.Policy {
	return pv.policyRows.list(t)
}

// Get finds a policy of whatever kind.
func (pv *PolicyView) Get(k model.PolicyKey) (model.Policy, bool) {
	return pv.policyRows.find(k)
}

func (pv *PolicyView) enterPolicy(ch tables.Change) {
	if k, _, now := pv.policyRows.enter(ch); now == nil {
		delete(pv.policySizes.meters, unionOf(k.Tenant, k.Name))
	}
}

// selectedBy returns the policies that select by labels which a filter covers, and
// the first such label.
func (pv *PolicyView) selectedBy(f model.LabelFilter) (label string, by []string) {
	covered := func(s model.Selector) bool {
		for _, k := range s.LabelKeys() {
			if f.Covers(k) {
				if label == "" {
					label = k
				}
				return true
			}
		}
		return false
	}
	for _, p := range pv.List("") {
		byPeers := func(r model.PolicyRule) bool {
			return slices.ContainsFunc(r.Peers, func(x model.Peer) bool { return x.Selector != nil && covered(*x.Selector) })
		}
		if covered(p.Applies) || slices.ContainsFunc(pv.AnyRulesOf(p.Key), byPeers) {
			by = append(by, p.Key.String())
		}
	}
	return label, by
}

// otherRules returns how many rules the policy of a rule has beside it.
func (pv *PolicyView) otherRules(k model.RuleKey) int {
	return read(pv.mu, func() int {
		rules := pv.rulesOfPolicy[k.PolicyKey()]
		if _, there := rules[k]; there {
			return len(rules) - 1
		}
		return len(rules)
	})
}

// siblingRule returns another rule of the policy of a rule, or that rule if it knows none.
func (pv *PolicyView) siblingRule(k model.RuleKey) model.RuleKey {
	return read(pv.mu, func() model.RuleKey {
		for other := range pv.rulesOfPolicy[k.PolicyKey()] {
			if other != k {
				return other
			}
		}
		return k
	})
}

// CheckNetworkPolicy checks that hosts can hold a network policy with its rules, in place of what is
// in force by its name: what they do not hold is model.ErrExhausted, or model.ErrInvalid
// where one rule is too much.
func (pv *PolicyView) CheckNetworkPolicy(n model.NetworkPolicy) error {
	for _, r := range n.Rules {
		if err := tooManyNames(r); err != nil {
			return err
		}
	}
	_, err := pv.checkLimits(n.Rules, []model.PolicyKey{n.Policy.Key}, nil)
	return err
}

// NetworkPolicies returns the network policies of a tenant, "" = of all.
func (pv *PolicyView) NetworkPolicies(t model.TenantName) []model.NetworkPolicy {
	var out []model.NetworkPolicy
	for _, p := range pv.List(t) {
		if p.Kind == model.KindNetwork {
			out = append(out, model.NetworkPolicy{Policy: p, Rules: pv.AnyRulesOf(p.Key)})
		}
	}
	return out
}

// NetworkPolicy finds a network policy.
func (pv *PolicyView) NetworkPolicy(k model.PolicyKey) (model.NetworkPolicy, bool) {
	p, ok := pv.Get(k)
	if !ok || p.Kind != model.KindNetwork {
		return model.NetworkPolicy{}, false
	}
	return model.NetworkPolicy{Policy: p, Rules: pv.AnyRulesOf(k)}, true
}

// NetworkRule finds a rule of a network policy.
func (pv *PolicyView) NetworkRule(k model.RuleKey) (model.PolicyRule, bool) {
	if p, ok := pv.Get(k.PolicyKey()); !ok || p.Kind != model.KindNetwork {
		return model.PolicyRule{}, false
	}
	return pv.ruleRows.find(k)
}

// enterPolicies enters a change of a policy, a rule or a replacement of rules.
func (pv *PolicyView) enterPolicies(ch tables.Change) {
	switch k := ch.Key.(type) {
	case model.PolicyKey:
		pv.enterPolicy(ch)
	case model.RuleKey:
		pv.enterRule(ch)
	case tables.ReplacementKey:
		pv.enterReplacement(k, value[tables.Replacement](ch))
	}
}

func (pv *PolicyView) enterReplacement(k tables.ReplacementKey, r *tables.Replacement) {
	if r != nil {
		pv.replacementRows[r.Policy] = *r
	} else {
		delete(pv.replacementRows, model.PolicyKey(k))
	}
}

func (pv *PolicyView) enterRule(ch tables.Change) {
	_, old, now := pv.ruleRows.enter(ch)
	if old != nil {
		pv.indexRule(*old, false)
	}
	if now != nil {
		pv.indexRule(*now, true)
	}
}

func (pv *PolicyView) indexRule(r model.PolicyRule, in bool) {
	pv.rulesOfPolicy.put(r.Key.PolicyKey(), r.Key, in)
	pv.policySizes.enterRule(r, in)
	for _, g := range groupsNamed(r) {
		pv.rulesOfGroup.put(g, r.Key, in)
	}
}

// Rules returns the rules of a tenant's Contiv policies, "" = of all.
func (pv *PolicyView) Rules(t model.TenantName) []model.Rule {
	return pv.contivRules(func() []model.PolicyRule { return pv.ruleRows.listed(t) })
}

// Rule finds a rule of a Contiv policy.
func (pv *PolicyView) Rule(k model.RuleKey) (model.Rule, bool) {
	list := pv.contivRules(func() []model.PolicyRule {
		if r, ok := pv.ruleRows.all[k]; ok {
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
func (pv *PolicyView) RulesOfPolicy(k model.PolicyKey) []model.Rule {
	return pv.contivRules(func() []model.PolicyRule { return sorted(pv.rulesOfPolicy[k], pv.ruleRows.all, lessRule) })
}

// RulesOfGroup returns the rules of Contiv policies that name a group as their peer.
func (pv *PolicyView) RulesOfGroup(k model.GroupKey) []model.Rule {
	return pv.contivRules(func() []model.PolicyRule { return sorted(pv.rulesOfGroup[k], pv.ruleRows.all, lessRule) })
}

// AnyRulesOf returns the rules of a policy of whatever kind.
func (pv *PolicyView) AnyRulesOf(k model.PolicyKey) []model.PolicyRule {
	return read(pv.mu, func() []model.PolicyRule { return sorted(pv.rulesOfPolicy[k], pv.ruleRows.all, lessRule) })
}

// contivRules translates what list finds under the view's lock, but for rules
// of other policies.
func (pv *PolicyView) contivRules(list func() []model.PolicyRule) []model.Rule {
	return read(pv.mu, func() []model.Rule {
		all := list()
		out := make([]model.Rule, 0, len(all))
		for _, r := range all {
			if p, ok := pv.policyRows.all[r.Key.PolicyKey()]; ok && p.Kind != model.KindContiv {
				continue
			}
			if c, ok := r.Contiv(); ok {
				out = append(out, c)
			}
		}
		return out
	})
}
