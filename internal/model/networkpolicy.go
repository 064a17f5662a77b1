package model

import (
	"cmp"
	"fmt"
	"slices"
)

var _ = register(Kind{
	Collection: "networkPolicys", Name: "networkPolicy", Order: 65,
})

// MaxNetworkPolicyRules is how many rules a network policy may have.
const MaxNetworkPolicyRules = 20_000

// NetworkPolicy is a Policy of KindNetwork with its rules, as users write it.
type NetworkPolicy struct {
	Policy Policy       `json:"policy"`
	Rules  []PolicyRule `json:"rules,omitempty"` // each id once
}

// Validate checks all fields. The error is of kind ErrInvalid.
func (n NetworkPolicy) Validate() error {
	if err := n.Policy.Validate(); err != nil {
		return err
	}
	p := n.Policy
	switch {
	case p.Kind != KindNetwork || p.Attached:
		return InvalidField("kind", p.Kind, "must be "+string(KindNetwork))
	case p.Owner == OwnerUser && p.Tier == TierKubernetes:
		return InvalidField("tier", p.Tier, "is for policies that Kubernetes owns")
	case len(n.Rules) > MaxNetworkPolicyRules:
		return InvalidField("rules", len(n.Rules), fmt.Sprintf("must be at most %d; several policies can have one order", MaxNetworkPolicyRules))
	case len(n.Rules) == 0 && !p.Default.Decides():
		return InvalidField("rules", "", "must not be empty in a policy that says nothing else: give it rules, or allow or deny as defaultIn or defaultOut")
	}
	ids := make(map[RuleID]bool, len(n.Rules))
	for i, r := range n.Rules {
		field := fmt.Sprintf("rules[%d]", i)
		if r.Key.PolicyKey() != p.Key {
			return InvalidField(field, r.Key, "must be of policy "+p.Key.String())
		}
		if ids[r.Key.Rule] {
			return InvalidField(field+".ruleId", r.Key.Rule, "must be another one for each rule")
		}
		ids[r.Key.Rule] = true
		if err := r.Validate(); err != nil {
			return InField(field, err)
		}
	}
	return nil
}

// SortRules orders rules by their id, the order of answers.
func SortRules(rules []PolicyRule) {
	slices.SortFunc(rules, func(a, b PolicyRule) int { return cmp.Compare(a.Key.Rule, b.Key.Rule) })
}
