package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// policyUnion is the policies of a group, whose rules are one list on a host; the
// names are sorted and apart by commas.
type policyUnion struct {
	tenant model.TenantName
	names  string
}

func unionOf(t model.TenantName, names ...model.PolicyName) policyUnion {
	var out []string
	for _, n := range names {
		out = append(out, string(n))
	}
	slices.Sort(out)
	return policyUnion{t, strings.Join(slices.Compact(out), ",")}
}

func (u policyUnion) String() string {
	if strings.Contains(u.names, ",") {
		return fmt.Sprintf("policies %q of one group", string(u.tenant)+":"+u.names)
	}
	return fmt.Sprintf("policy %q", string(u.tenant)+":"+u.names)
}

func (u policyUnion) policies() (out []model.PolicyKey) {
	for n := range strings.SplitSeq(u.names, ",") {
		out = append(out, model.PolicyKey{Tenant: u.tenant, Name: model.PolicyName(n)})
	}
	return out
}

// sizes are the View's meters of policies that have become large, alone and
// together with others of a group. The view's lock guards them.
type sizes struct {
	rules  map[model.PolicyKey]ruleSum
	unions map[model.PolicyKey]map[policyUnion]int // how many groups have the policy among several
	meters map[policyUnion]*model.PolicyMeter
	flows  map[model.PolicyKey]*model.FlowMeter
}

// ruleSum is the sizes of a policy's rules together.
type ruleSum struct{ peers, ports int }

func (s ruleSum) with(r model.PolicyRule, by int) ruleSum {
	peers, ports := model.RuleSize(r)
	return ruleSum{s.peers + by*peers, s.ports + by*ports}
}

// enterGroup enters what a group was and is; nil = it is not there.
func (s *sizes) enterGroup(old, now *model.Group) {
	if old != nil {
		s.indexGroup(*old, false)
	}
	if now != nil {
		s.indexGroup(*now, true)
	}
}

// indexGroup enters (or takes out) the policies of a group.
func (s *sizes) indexGroup(g model.Group, in bool) {
	u := unionOf(g.Key.Tenant, g.Policies...)
	if !strings.Contains(u.names, ",") {
		return
	}
	for _, p := range u.policies() {
		if s.unions[p] == nil {
			s.unions[p] = map[policyUnion]int{}
		}
		if in {
			s.unions[p][u]++
		} else if s.unions[p][u]--; s.unions[p][u] == 0 {
			delete(s.unions[p], u)
			delete(s.meters, u)
		}
		if len(s.unions[p]) == 0 {
			delete(s.unions, p)
		}
	}
}

// enterRule counts a rule that has come, or gone.
func (s *sizes) enterRule(r model.PolicyRule, in bool) {
	p, by := r.Key.PolicyKey(), 1
	if !in {
		by = -1
	}
	if s.rules[p] = s.rules[p].with(r, by); s.rules[p] == (ruleSum{}) {
		delete(s.rules, p)
	}
	s.countFlows(p, r, by)
	if len(s.meters) == 0 {
		return
	}
	for _, u := range s.of(r.Key.PolicyKey()) {
		switch m := s.meters[u]; {
		case m == nil:
		case in:
			m.Add(r)
		default:
			m.Remove(r)
		}
	}
}

// of returns the unions that a policy is in, itself first.
func (s *sizes) of(p model.PolicyKey) []policyUnion {
	out := []policyUnion{unionOf(p.Tenant, p.Name)}
	for u := range s.unions[p] {
		out = append(out, u)
	}
	return out
}

// checkLimits refuses, with model.ErrExhausted, rules and groups that would make the
// rules of a policy, or of the policies of one group, more than a host holds. It
// goes by what the mirror knows: what other replicas commit at the same moment
// may pass beside it, and groups that come later add identities to rules that
// name their network. There the host refuses. A rule takes the place of one with
// its key, and the policies that are replaced have no rules but those given. index
// is the first rule, or len(rules) and more for a group, that does not fit.
func (pv *PolicyView) checkLimits(rules []model.PolicyRule, replaced []model.PolicyKey, groups []model.Group) (index int, err error) {
	pv.mu.Lock()
	defer pv.mu.Unlock()
	last := map[policyUnion]int{} // the rule or group to blame when nothing before it is
	changes := pv.sizeChanges(rules, replaced)
	for p, ch := range changes {
		if len(ch.joining) == 0 {
			continue
		}
		for _, u := range pv.policySizes.of(p) {
			last[u] = max(last[u], ch.joining[len(ch.joining)-1])
		}
	}
	for i, g := range groups {
		old := pv.groups.groupRows.all[g.Key].Policies
		if len(g.Policies) > 1 && slices.ContainsFunc(g.Policies, func(p model.PolicyName) bool { return !slices.Contains(old, p) }) {
			last[unionOf(g.Key.Tenant, g.Policies...)] = len(rules) + i
		}
	}
	for u, at := range last {
		n, e := pv.checkUnion(u, rules, changes)
		if e == nil {
			continue
		}
		e = fmt.Errorf("%s: %w", u, e)
		if n >= 0 && at < len(rules) {
			at = n
		}
		if err == nil || at < index {
			index, err = at, e
		}
	}
	return index, err
}

// sizeChange is how a commit changes the rules of one policy.
type sizeChange struct {
	joining []int // indexes of rules that are new, or other than before
	leaving []model.PolicyRule
}

func (pv *PolicyView) sizeChanges(rules []model.PolicyRule, replaced []model.PolicyKey) map[model.PolicyKey]*sizeChange {
	out := map[model.PolicyKey]*sizeChange{}
	of := func(p model.PolicyKey) *sizeChange {
		if out[p] == nil {
			out[p] = &sizeChange{}
		}
		return out[p]
	}
	given := make(map[model.RuleKey]bool, len(rules))
	for i, r := range rules {
		given[r.Key] = true
		ch := of(r.Key.PolicyKey())
		old, there := pv.ruleRows.all[r.Key]
		if there && old.Equal(r) {
			continue
		}
		if ch.joining = append(ch.joining, i); there {
			ch.leaving = append(ch.leaving, old)
		}
	}
	for _, p := range replaced {
		for k := range pv.rulesOfPolicy[p] {
			if !given[k] {
				of(p).leaving = append(of(p).leaving, pv.ruleRows.all[k])
			}
		}
	}
	return out
}

// checkUnion does so for one union; n is the first rule that does not fit.
func (pv *PolicyView) checkUnion(u policyUnion, rules []model.PolicyRule, changes map[model.PolicyKey]*sizeChange) (n int, err error) {
	policies := u.policies()
	var sum ruleSum
	var at []int // of the rules that join
	var leaving []model.PolicyRule
	for _, p := range policies {
		have := pv.policySizes.rules[p]
		sum.peers, sum.ports = sum.peers+have.peers, sum.ports+have.ports
		if ch := changes[p]; ch != nil {
			at, leaving = append(at, ch.joining...), append(leaving, ch.leaving...)
		}
	}
	slices.Sort(at)
	for _, i := range at {
		sum = sum.with(rules[i], 1)
	}
	for _, r := range leaving {
		sum = sum.with(r, -1)
	}
	// All ports at every peer and every identity cannot take more.
	identities := max(len(pv.groups.groupRows.of[u.tenant]), len(pv.identities.identitiesOf[u.tenant]))
	if n, err := pv.checkFlows(policies, rules, at, leaving, identities+1); err != nil {
		return n, err
	}
	if (1+2*sum.ports)*(sum.peers+identities+4) <= model.MaxPolicyEntries {
		return 0, nil
	}
	joining := make([]model.PolicyRule, len(at))
	for i, x := range at {
		joining[i] = rules[x]
	}
	m := pv.policySizes.meters[u]
	if m == nil {
		m = &model.PolicyMeter{}
		for _, p := range policies {
			for k := range pv.rulesOfPolicy[p] {
				m.Add(pv.ruleRows.all[k])
			}
		}
		if len(policies) == 1 || pv.policySizes.unions[policies[0]][u] > 0 { // others are not kept up to date
			pv.policySizes.meters[u] = m
		}
	}
	fit, err := m.Check(joining, leaving, pv.countSelected)
	if err != nil && fit < len(at) {
		return at[fit], err
	}
	return -1, err
}
