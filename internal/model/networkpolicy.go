package model

import (
	"cmp"
	"fmt"
	"slices"
)

var _ = register(Kind{
	Collection: "networkPolicys", Name: "networkPolicy", Order: 65,
})

// Limits of one network policy, which is one transaction: all of its rules may
// be others than before.
const (
	MaxNetworkPolicyRules = 10
	MaxNetworkPolicyNames = 4 // groups and networks that its rules name
)

// NetworkPolicy is a Policy of KindNetwork with its rules, as users write it.
type NetworkPolicy struct {
	Policy Policy       `json:"policy"`
	Rules  []PolicyRule `json:"rules,omitempty"` // by id, each id once
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
	case len(n.Rules) == 0 && p.Default == (Defaults{}):
		return InvalidField("rules", len(n.Rules), "must not be empty in a policy without defaultIn and defaultOut, which says nothing")
	}
	if err := generatedLabel("applies", p.Applies); err != nil {
		return err
	}
	names := 0
	for i, r := range n.Rules {
		if r.Key.PolicyKey() != p.Key {
			return InvalidField("rules", r.Key, "must be of policy "+p.Key.String())
		}
		if slices.ContainsFunc(n.Rules[:i], func(o PolicyRule) bool { return o.Key == r.Key }) {
			return InvalidField("rules", r.Key.Rule, "must have another ruleId for each rule")
		}
		if err := r.Validate(); err != nil {
			return fmt.Errorf("rules: rule %q: %w", r.Key.Rule, err)
		}
		for _, x := range r.Peers {
			if x.Network != (NetworkKey{}) {
				names++
			}
			if x.Selector == nil {
				continue
			}
			if x.Selector.Group != "" {
				names++
			}
			if x.Selector.Network != "" {
				names++
			}
			if err := generatedLabel("peers", *x.Selector); err != nil {
				return fmt.Errorf("rules: rule %q: %w", r.Key.Rule, err)
			}
		}
	}
	if names > MaxNetworkPolicyNames {
		return InvalidField("rules", names, fmt.Sprintf("must name groups and networks at most %d times in all rules together; select by labels, or write several policies of one order", MaxNetworkPolicyNames))
	}
	return nil
}

// generatedLabel refuses a selector by a label that no identity has.
func generatedLabel(field string, s Selector) error {
	for _, r := range s.Requirements() {
		if GeneratedLabel(r.Key) {
			return InvalidField(field, r.Key, "must not be a label that runtimes generate: it is no part of an endpoint's identity, so nothing can be selected by it")
		}
	}
	return nil
}

// SortRules orders rules by their id, which is how they are kept.
func SortRules(rules []PolicyRule) {
	slices.SortFunc(rules, func(a, b PolicyRule) int { return cmp.Compare(a.Key.Rule, b.Key.Rule) })
}
