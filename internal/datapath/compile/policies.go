package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// policies has the rows of policies and rules.
//
// Takes: policy and rule rows.
// Gives: to whom policies apply, by selections; whether a tenant asks for labels, to
// identities; as a step, it removes policies that nothing refers to; marks rules, sets,
// subjects, groups.
type policies struct {
	inv           *inventory
	identities    *Identities
	selections    *selections
	problems      *problems
	dirtyPolicies *marks[*policy]
	dirtyRules    *marks[*rule]
	dirtySets     *marks[*policySet]
	dirtyGroups   *marks[*group]
}

// compile removes the marked policies that nothing refers to.
func (po *policies) compile() {
	for p := range po.dirtyPolicies.of {
		po.inv.dropPolicy(p)
	}
}

func (po *policies) put(v model.Policy) {
	p := po.inv.policy(v.Key)
	if p.rec == nil || !p.rec.Equal(v) {
		po.enter(p, &v)
	}
}

func (po *policies) remove(k model.PolicyKey) {
	if p := po.inv.policy(k); p.rec != nil {
		po.enter(p, nil)
	} else {
		po.inv.dropPolicy(p)
	}
}

func (po *policies) enter(p *policy, rec *model.Policy) {
	po.identities.countLabelSelectors(p.key.Tenant, policyUsesLabels(p.rec), policyUsesLabels(rec))
	po.touchApplied(p)
	if s := p.applies; s != nil {
		delete(s.policies, p)
		p.applies = nil
		po.selections.release(s)
	}
	p.rec, p.malformed = rec, ""
	object := "policy " + p.key.String()
	po.problems.set(object, "")
	if rec != nil {
		if p.malformed = malformedPolicy(rec); p.malformed != "" {
			po.problems.set(object, p.malformed+": whom it applies to denies everything")
		}
		if !rec.Attached {
			p.applies = po.selections.get(appliesOf(rec))
			p.applies.policies.add(p)
		}
	}
	po.touchApplied(p)
	po.dirtyPolicies.add(p)
	for s := range p.sets {
		s.rebuild = true
		po.dirtySets.add(s)
	}
	if p.compiled {
		for _, r := range p.rules {
			po.dirtyRules.add(r)
		}
	}
}

// appliesOf is whom a policy selects: everybody of its tenant when this version
// does not know.
func appliesOf(p *model.Policy) model.Selector {
	if malformedSelector(p.Applies) != "" || p.Applies.Tenant != p.Key.Tenant {
		return model.Selector{Tenant: p.Key.Tenant}
	}
	return p.Applies
}

// touchApplied has the subjects of a policy looked at again: the ones that it
// selects, those in groups that name it, and all whose labels are unknown.
func (po *policies) touchApplied(p *policy) {
	for k := range p.refs {
		po.dirtyGroups.add(po.inv.group(k))
	}
	s := p.applies
	if s == nil {
		return
	}
	t := s.tenant
	touch := func(id model.Identity) { po.identities.touch(t, id) }
	for id := range t.orphans {
		touch(id)
	}
	if s.ids.Len() < len(t.subjects) {
		for id := range s.ids.All() {
			touch(id)
		}
		return
	}
	for id := range t.subjects {
		if s.ids.Has(id) {
			touch(id)
		}
	}
}

// malformedPolicy says what a policy has that this version does not know.
func malformedPolicy(p *model.Policy) string {
	switch {
	case !p.Tier.IsKnown():
		return "its tier is not known"
	case p.Order < 0 || p.Order > model.MaxOrder:
		return fmt.Sprintf("order %d is not known", p.Order)
	case !p.Attached && p.Applies.Tenant != p.Key.Tenant:
		return "it selects in another tenant"
	}
	for _, a := range []model.Action{p.Default.In, p.Default.Out} {
		if a != "" && !a.IsKnown() {
			return fmt.Sprintf("default %q is not known", a)
		}
	}
	return malformedSelector(p.Applies)
}

func malformedSelector(s model.Selector) string {
	for _, r := range s.MatchExpressions {
		switch r.Operator {
		case model.OpIn, model.OpNotIn, model.OpExists, model.OpDoesNotExist:
		default:
			return fmt.Sprintf("operator %q is not known", r.Operator)
		}
	}
	return ""
}

func (po *policies) putRule(v model.PolicyRule) {
	p := po.inv.policy(v.Key.PolicyKey())
	r := lookup(p.rules, v.Key.Rule, func() *rule { return &rule{key: v.Key, policy: p} })
	if r.rec != nil && r.rec.Equal(v) {
		return
	}
	po.identities.countLabelSelectors(v.Key.Tenant, ruleUsesLabels(r.rec), ruleUsesLabels(&v))
	po.trackNamedPorts(p, r.rec, &v)
	r.rec = &v
	po.dirtyRules.add(r)
}

func (po *policies) removeRule(k model.RuleKey) {
	p := po.inv.policy(k.PolicyKey())
	if r := p.rules[k.Rule]; r != nil {
		po.identities.countLabelSelectors(k.Tenant, ruleUsesLabels(r.rec), false)
		po.trackNamedPorts(p, r.rec, nil)
		r.rec = nil
		if p.compiled {
			po.dirtyRules.add(r) // which takes it out
		} else {
			delete(p.rules, k.Rule)
		}
	}
	po.inv.dropPolicy(p)
}
