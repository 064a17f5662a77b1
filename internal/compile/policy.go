package compile

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/desired"
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
	r.rec = &v
	c.dirtyRules.add(r)
}

// DeleteRule forgets a rule.
func (c *Compiler) DeleteRule(k model.RuleKey) {
	p := c.policy(k.PolicyKey())
	if r := p.rules[k.Rule]; r != nil {
		c.ask(k.Tenant, ruleAsks(r.rec), false)
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

// bind takes the selections of a rule's peers, and lets those of its last form go.
func (c *Compiler) bind(r *rule) {
	if r.bound == r.rec {
		return
	}
	var peers []*selection
	if r.rec != nil && malformedRule(r.rec) == "" {
		for _, p := range r.rec.Peers {
			switch {
			case p.Selector != nil:
				peers = append(peers, c.selection(*p.Selector))
			case !p.CIDR.IsValid():
				peers = append(peers, c.selection(model.Selector{Tenant: p.Network.Tenant, Network: p.Network.Name}))
			}
			for _, s := range peers {
				s.rules.add(r)
			}
		}
	}
	c.unbind(r, peers)
	r.bound, r.peers = r.rec, peers
}

// unbind lets the selections of a rule's peers go, but for those to be kept.
func (c *Compiler) unbind(r *rule, keep []*selection) {
	for _, s := range r.peers {
		if !slices.Contains(keep, s) {
			delete(s.rules, r)
			c.release(s)
		}
	}
	r.bound, r.peers, r.seen, r.union = nil, nil, nil, desired.Identities{}
}

// compileRule compiles a rule anew and enters it into its policy and the sets
// that have it.
func (c *Compiler) compileRule(r *rule) {
	p := r.policy
	c.bind(r)
	var in, out *desired.Rule
	text := ""
	if r.rec != nil {
		next := &desired.Rule{ID: r.key.String(), Priority: p.priority(r.rec.Priority), Action: r.rec.Action, Log: r.rec.Log}
		if why := malformedRule(r.rec); why != "" {
			next.Action, next.AnyPeer = model.Deny, true
			text = why + ": everything is denied in its place"
			in, out = next, next
		} else {
			next.Ports = r.rec.Ports
			if text = c.resolvePeers(r, next); r.rec.Direction == model.In {
				in = next
			} else {
				out = next
			}
		}
	}
	if text != "" || r.problem {
		c.problems.set("rule "+r.key.String(), text)
		r.problem = text != ""
	}
	c.enterRule(r, &r.in, in, model.In)
	c.enterRule(r, &r.out, out, model.Out)
	if r.rec == nil {
		delete(p.rules, r.key.Rule)
		c.prunePolicy(p)
	}
}

// enterRule replaces one direction of a rule.
func (c *Compiler) enterRule(r *rule, at **desired.Rule, next *desired.Rule, dir model.Direction) {
	p, id, old := r.policy, r.key.String(), *at
	if old == next || old != nil && next != nil && old.Equal(next) {
		return
	}
	*at = next
	rules := &p.in
	if dir == model.Out {
		rules = &p.out
	}
	put(rules, id, next)
	for s := range p.sets {
		s.changeRule(p, dir, id, next)
		c.dirtySets.add(s)
	}
}

func put(rules *desired.Rules, id string, r *desired.Rule) {
	if r == nil {
		*rules = rules.Delete(id)
	} else {
		*rules = rules.Set(id, r)
	}
}

// priority is the rank of a rule in its tier: of its policy's order, and its own.
func (p *policy) priority(of int) int {
	order := 0
	if p.rec != nil {
		order = min(max(p.rec.Order, 0), model.MaxOrder)
	}
	return (model.MaxOrder-order)*100 + min(max(of, 0), 100)
}

// malformedRule says what a rule has that this version does not know.
func malformedRule(r *model.PolicyRule) string {
	switch {
	case r.Direction != model.In && r.Direction != model.Out:
		return fmt.Sprintf("direction %q is not known", r.Direction)
	case !knownAction(r.Action):
		return fmt.Sprintf("action %q is not known", r.Action)
	}
	for _, m := range r.Ports {
		switch {
		case m.Protocol < model.AnyProtocol || m.Protocol > 255:
			return fmt.Sprintf("protocol %d is not known", int(m.Protocol))
		case !m.Protocol.HasPorts() && (m.Lo != 0 || m.Hi != 65535):
			return fmt.Sprintf("protocol %q has no ports", m.Protocol)
		case m.Lo > m.Hi:
			return fmt.Sprintf("ports %d-%d end before they begin", m.Lo, m.Hi)
		}
	}
	for _, p := range r.Peers {
		switch {
		case p.Selector == nil && !p.CIDR.IsValid() && p.Network == (model.NetworkKey{}):
			return "a kind of peer is not known"
		case p.Selector != nil && malformedSelector(*p.Selector) != "":
			return malformedSelector(*p.Selector)
		}
	}
	return ""
}

// resolvePeers fills in a rule's peers. A peer that is not known makes a rule
// that denies or passes deny any peer, and adds nothing to one that allows.
func (c *Compiler) resolvePeers(r *rule, next *desired.Rule) (problem string) {
	next.AnyPeer = len(r.rec.Peers) == 0
	shut := func(what string) {
		problem = what + " is unknown: the rule matches nothing"
		if r.rec.Action != model.Allow {
			problem = what + " is unknown: the rule denies any peer"
			next.Action, next.AnyPeer = model.Deny, true
		}
	}
	now := make([]desired.Identities, 0, len(r.peers))
	for _, p := range r.rec.Peers {
		if p.CIDR.IsValid() && p.Selector == nil {
			cidr := desired.CIDR{Prefix: p.CIDR.Masked()}
			for _, x := range p.Except {
				cidr.Except = append(cidr.Except, x.Masked())
			}
			next.CIDRs = append(next.CIDRs, cidr)
			continue
		}
		s := r.peers[len(now)]
		missing := c.missing(s.selector)
		if p.Selector == nil && missing == "" {
			missing = c.networkAddresses(p.Network, next)
		}
		switch {
		case missing != "":
			shut(missing)
			now = append(now, desired.Identities{})
		case r.rec.Action == model.Deny:
			now = append(now, s.denied)
		case r.rec.Action == model.Pass && len(s.tenant.compiledOrphans) > 0:
			next.Action = model.Deny // or what comes after it in its tier would allow whom it should have passed on
			now = append(now, s.denied)
		default:
			now = append(now, s.ids)
		}
	}
	r.unite(now)
	if next.AnyPeer {
		next.CIDRs = nil
		return problem
	}
	next.Identities = r.union
	return problem
}

// unite makes the union of what a rule's selections are now: of one, the very set
// that it has; of several, what it was with what has changed.
func (r *rule) unite(now []desired.Identities) {
	if len(now) <= 1 {
		r.union = desired.Identities{}
		for _, s := range now {
			r.union = s
		}
		return
	}
	if len(r.seen) != len(now) {
		r.seen, r.union = make([]desired.Identities, len(now)), desired.Identities{}
	}
	for i, s := range now {
		for id, has := range s.Diff(r.seen[i]) {
			if has {
				r.union = r.union.With(id)
				continue
			}
			still := false
			for _, other := range now {
				still = still || other.Has(id)
			}
			if !still {
				r.union = r.union.Without(id)
			}
		}
	}
	copy(r.seen, now)
}

// missing names the group or network of a selector that is not known, if any.
func (c *Compiler) missing(s model.Selector) string {
	if s.Group != "" {
		k := model.GroupKey{Tenant: s.Tenant, Name: s.Group}
		if g := c.groups[k]; g == nil || g.rec == nil {
			return "group " + k.String()
		}
	}
	if s.Network != "" {
		k := model.NetworkKey{Tenant: s.Tenant, Name: s.Network}
		if n := c.networks[k]; n == nil || n.rec == nil {
			return "network " + k.String()
		}
	}
	return ""
}

// networkAddresses adds the addresses of a VLAN network's subnets on it, and
// names the network when it has no number.
func (c *Compiler) networkAddresses(k model.NetworkKey, out *desired.Rule) (missing string) {
	n := c.networks[k]
	if n == nil || n.rec == nil || n.rec.ID == 0 {
		return "network " + k.String()
	}
	if n.rec.Encap == model.EncapVLAN {
		for _, p := range []netip.Prefix{n.rec.Subnet, n.rec.Subnet6} {
			if p.IsValid() {
				out.CIDRs = append(out.CIDRs, desired.CIDR{Prefix: p.Masked(), Network: n.rec.ID})
			}
		}
	}
	return ""
}
