package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policyChanges is what the next Compile looks at of policies.
type policyChanges struct {
	dirtyPolicies   set[*policy]    // whose record has changed
	dirtyRules      set[*rule]      // of compiled policies
	dirtySelections set[*selection] // whose members or references have changed
	dirtySubjects   set[*subject]
	dirtySets       set[*policySet]
	unused          set[*policySet] // that lost their last user, and may have got another
}

func newPolicyChanges() policyChanges {
	return policyChanges{set[*policy]{}, set[*rule]{}, set[*selection]{}, set[*subject]{}, set[*policySet]{}, set[*policySet]{}}
}

// compilePolicies brings rules and policy sets up to date, and marks the ports
// whose set has got another number.
func (c *Compiler) compilePolicies(before desired.Host) {
	c.dropSubjects()
	c.compileGroups()
	c.compileSubjects()
	c.sweepSets()
	for p := range c.dirtyPolicies {
		c.prunePolicy(p)
	}
	for s := range c.dirtySelections {
		s.include()
		for r := range s.rules {
			c.dirtyRules.add(r)
		}
	}
	for r := range c.dirtyRules {
		if r.policy.compiled {
			c.compileRule(r)
		}
	}
	c.compileSets(before)
	reset(&c.dirtyPolicies)
	reset(&c.dirtyRules)
	reset(&c.dirtySelections)
	reset(&c.dirtySubjects)
	reset(&c.dirtySets)
}

func (c *Compiler) policy(k model.PolicyKey) *policy {
	return lookup(c.policies, k, func() *policy {
		return &policy{key: k, rules: map[model.RuleID]*rule{}, refs: set[model.GroupKey]{}, sets: set[*policySet]{}}
	})
}

func (c *Compiler) prunePolicy(p *policy) {
	if p.rec == nil && len(p.rules) == 0 && len(p.refs) == 0 && len(p.sets) == 0 && c.policies[p.key] == p {
		delete(c.policies, p.key)
	}
}

// SetPolicy records a policy.
func (c *Compiler) SetPolicy(v model.Policy) {
	p := c.policy(v.Key)
	if p.rec == nil || !p.rec.Equal(v) {
		c.putPolicy(p, &v)
	}
}

// DeletePolicy forgets a policy; groups that still name it deny everything.
func (c *Compiler) DeletePolicy(k model.PolicyKey) {
	if p := c.policy(k); p.rec != nil {
		c.putPolicy(p, nil)
	} else {
		c.prunePolicy(p)
	}
}

func (c *Compiler) putPolicy(p *policy, rec *model.Policy) {
	c.ask(p.key.Tenant, policyAsks(p.rec), policyAsks(rec))
	c.touchApplied(p)
	if s := p.applies; s != nil {
		delete(s.policies, p)
		p.applies = nil
		c.release(s)
	}
	p.rec, p.malformed = rec, ""
	object := "policy " + p.key.String()
	c.problems.set(object, "")
	if rec != nil {
		if p.malformed = malformedPolicy(rec); p.malformed != "" {
			c.problems.set(object, p.malformed+": whom it applies to denies everything")
		}
		if !rec.Attached {
			p.applies = c.selection(appliesOf(rec))
			p.applies.policies.add(p)
		}
	}
	c.touchApplied(p)
	c.dirtyPolicies.add(p)
	for s := range p.sets {
		s.rebuild = true
		c.dirtySets.add(s)
	}
	if p.compiled {
		for _, r := range p.rules {
			c.dirtyRules.add(r)
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
func (c *Compiler) touchApplied(p *policy) {
	for k := range p.refs {
		c.dirtyGroups.add(c.group(k))
	}
	s := p.applies
	if s == nil {
		return
	}
	t := s.tenant
	touch := func(id model.Identity) { c.touchIdentity(t, id) }
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
	case !p.Tier.Known():
		return "its tier is not known"
	case p.Order < 0 || p.Order > model.MaxOrder:
		return fmt.Sprintf("order %d is not known", p.Order)
	case !p.Attached && p.Applies.Tenant != p.Key.Tenant:
		return "it selects in another tenant"
	}
	for _, a := range []model.Action{p.Default.In, p.Default.Out} {
		if a != "" && !knownAction(a) {
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

func knownAction(a model.Action) bool { return a == model.Allow || a == model.Deny || a == model.Pass }

// SetRule records a rule.
func (c *Compiler) SetRule(v model.PolicyRule) {
	p := c.policy(v.Key.PolicyKey())
	r := lookup(p.rules, v.Key.Rule, func() *rule { return &rule{key: v.Key, policy: p} })
	if r.rec != nil && r.rec.Equal(v) {
		return
	}
	c.ask(v.Key.Tenant, ruleAsks(r.rec), ruleAsks(&v))
	c.name(p, r.rec, &v)
	r.rec = &v
	c.dirtyRules.add(r)
}

// DeleteRule forgets a rule.
func (c *Compiler) DeleteRule(k model.RuleKey) {
	p := c.policy(k.PolicyKey())
	if r := p.rules[k.Rule]; r != nil {
		c.ask(k.Tenant, ruleAsks(r.rec), false)
		c.name(p, r.rec, nil)
		r.rec = nil
		if p.compiled {
			c.dirtyRules.add(r) // which takes it out
		} else {
			delete(p.rules, k.Rule)
		}
	}
	c.prunePolicy(p)
}

// useRules compiles a policy's rules when the first set has it, and drops what was
// compiled when the last set is gone.
func (c *Compiler) useRules(p *policy) {
	if used := len(p.sets) > 0; used == p.compiled {
		return
	}
	p.compiled = !p.compiled
	if p.compiled {
		for _, r := range p.rules {
			c.dirtyRules.add(r)
		}
		return
	}
	for id, r := range p.rules {
		c.unbind(r, nil)
		if t := c.tenants[r.key.Tenant]; t != nil {
			delete(t.named, r)
		}
		if r.in, r.out = nil, nil; r.problem {
			r.problem = false
			c.problems.set("rule "+r.key.String(), "")
		}
		if r.rec == nil {
			delete(p.rules, id)
		}
	}
	p.in, p.out = desired.Rules{}, desired.Rules{}
	c.dirtyPolicies.add(p)
	c.prunePolicy(p)
}
