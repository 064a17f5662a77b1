package compile

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policySets has the policy sets that subjects use, by name. Two subjects with the same
// plan share a set.
//
// Takes: plans.
// Gives: sets to subjects, which policies are used to rules; as a step, it removes
// unused sets; removals from PolicySets; marks sets, endpoints.
type policySets struct {
	all     map[string]*policySet       // by name
	hashes  map[desired.PolicySetID]int // present names that have a hash
	clashes int                         // hashes that several names have, or that are 0
	unused  set[*policySet]             // that lost their last user, and may have got another

	rules     *rules
	out       *output
	dirtySets *marks[*policySet]
	dirtyEps  *marks[*endpoint]
}

// policySet is the whole policy of subjects to whom the same policies apply. Its
// name says what is in it, so that it does not matter how it came about.
type policySet struct {
	// policySets:
	name            string
	policies        []*policy         // enforced
	ports           []model.NamedPort // what its subjects call ports, where a policy names any
	audits          []*policySet      // each with one more policy
	control         *network          // whose control tier it has; nil = none
	isolatedNetwork *network          // whose tiers that keep tenants apart it has; nil = none
	denyAllRule     string            // id of the rule that denies everything instead
	users           set[*subject]     // empty when it is only there as an audit of others
	refs            int               // how many sets have it as an audit

	// setOutput:
	rebuild  bool        // marked by policies
	in, out  []tierRules // rules enters changes of single rules
	id       desired.PolicySetID
	compiled *desired.PolicySet
}

// tierRules are a tier's rules in one direction: those of its only policy, or
// the union of several, which follows every change.
type tierRules struct {
	tier     model.Tier
	policies []*policy
	rules    desired.Rules
	def      model.Action
	defOf    string // the policies whose default that is, as desired.Tier has them
}

// of returns the set of a plan, made when it is not there; nil when no policy
// applies.
func (ps *policySets) of(s *subject, p plan) *policySet {
	tenant := string(s.key.network.Tenant)
	if p.denyReason != "" {
		who := model.GroupKey{Tenant: s.key.network.Tenant, Name: s.key.group}.String()
		if s.group == nil {
			who = s.key.network.String()
		}
		return ps.add(who+"/"+p.denyReason, plan{}, "shut/"+who)
	}
	if len(p.enforced) == 0 && len(p.audited) == 0 && p.control == nil && p.isolatedNetwork == nil {
		return nil
	}
	names := func(list []*policy) string {
		out := make([]string, len(list))
		for i, x := range list {
			out[i] = string(x.key.Name)
		}
		return strings.Join(out, ",")
	}
	name := tenant + "/" + names(p.enforced)
	if len(p.audited) > 0 {
		name += " audit " + names(p.audited)
	}
	if p.control != nil {
		name += " control plane by " + string(p.control.key.Name)
	}
	if len(p.ports) > 0 {
		name += " ports " + portsText(p.ports)
	}
	if p.isolatedNetwork != nil {
		name += " apart on " + string(p.isolatedNetwork.key.Name)
	}
	set := ps.all[name]
	if set != nil {
		return set
	}
	set = ps.add(name, p, "")
	for _, a := range p.audited {
		with := plan{control: p.control, isolatedNetwork: p.isolatedNetwork, ports: p.ports, enforced: append(slices.Clone(p.enforced), a)}
		slices.SortFunc(with.enforced, func(a, b *policy) int { return cmp.Compare(a.key.Name, b.key.Name) })
		beside := ps.of(s, with)
		beside.refs++
		set.audits = append(set.audits, beside)
	}
	return set
}

func (ps *policySets) add(name string, p plan, shut string) *policySet {
	if old := ps.all[name]; old != nil {
		return old
	}
	set := &policySet{name: name, policies: p.enforced, ports: p.ports, control: p.control, isolatedNetwork: p.isolatedNetwork, denyAllRule: shut, users: set[*subject]{}, rebuild: true}
	ps.all[name] = set
	ps.dirtySets.add(set)
	for _, x := range p.enforced {
		x.sets.add(set)
		ps.rules.use(x)
	}
	ps.countHash(set, 1)
	return set
}

// compile removes the sets that no subject has, when all subjects have theirs.
func (ps *policySets) compile() {
	for len(ps.unused) > 0 {
		for s := range ps.unused {
			delete(ps.unused, s)
			if len(s.users) > 0 || s.refs > 0 {
				continue
			}
			delete(ps.all, s.name)
			ps.dirtySets.remove(s)
			ps.countHash(s, -1)
			for _, x := range s.policies {
				delete(x.sets, s)
				ps.rules.use(x)
			}
			for _, a := range s.audits {
				a.refs--
				ps.unused.add(a)
			}
			if s.compiled != nil {
				ps.out.PolicySets = ps.out.PolicySets.Delete(s.id)
			}
		}
	}
}

// changeRule enters a rule of one of the set's policies in place of another one; nil
// = there was none, or it is gone.
func (s *policySet) changeRule(p *policy, dir model.Direction, old, r *desired.Rule) {
	if s.rebuild {
		return
	}
	tiers, own := s.in, p.in
	if dir == model.Out {
		tiers, own = s.out, p.out
	}
	for i := range tiers {
		t := &tiers[i]
		switch {
		case t.tier != p.rec.Tier:
		case len(t.policies) == 1 && (dir == model.Out || p.named == 0):
			t.rules = own
		default:
			old, r := s.resolved(old), s.resolved(r)
			if old != nil && (r == nil || r.ID != old.ID) {
				put(&t.rules, old.ID, nil)
			}
			if r != nil {
				put(&t.rules, r.ID, r)
			}
		}
	}
}

// build makes the tiers from the policies as they are.
func (s *policySet) build() {
	s.in, s.out = nil, nil
	for _, tier := range model.Tiers() {
		var of []*policy
		for _, p := range s.policies {
			if p.rec.Tier == tier {
				of = append(of, p)
			}
		}
		if len(of) == 0 {
			continue
		}
		s.in = append(s.in, s.mergePolicies(tier, of, model.In))
		s.out = append(s.out, s.mergePolicies(tier, of, model.Out))
	}
	s.rebuild = false
}

func (s *policySet) mergePolicies(tier model.Tier, of []*policy, dir model.Direction) tierRules {
	rules := func(p *policy) desired.Rules {
		if dir == model.Out {
			return p.out
		}
		return p.in
	}
	t := tierRules{tier: tier, policies: of, def: model.Pass}
	var largest *policy
	said := map[model.Action]bool{}
	for _, p := range of {
		if largest == nil || rules(p).Len() > rules(largest).Len() {
			largest = p
		}
		said[p.rec.Default.Of(dir)] = true
	}
	t.rules = rules(largest)
	for _, p := range of {
		if p == largest && (dir == model.Out || p.named == 0) {
			continue
		}
		for id, r := range rules(p).All() {
			if now := s.resolved(r); now != r {
				put(&t.rules, id, nil)
				r = now
			}
			if r != nil {
				put(&t.rules, r.ID, r)
			}
		}
	}
	for a := range said {
		if a.IsKnown() && a != model.Pass && (t.def == model.Pass || a.Rank() < t.def.Rank()) {
			t.def = a
		}
	}
	var defOf []string
	for _, p := range of {
		if p.rec.Default.Of(dir) == t.def && t.def != model.Pass {
			defOf = append(defOf, p.key.String())
		}
	}
	t.defOf = strings.Join(defOf, ",")
	return t
}

// setHash is a variable so that a test can make collisions.
var setHash = func(name string) desired.PolicySetID {
	h := fnv.New32a()
	h.Write([]byte(name))
	return desired.PolicySetID(h.Sum32())
}

// countHash keeps count of the names that have a hash; they clash when several
// have one, or when it is no number.
func (ps *policySets) countHash(s *policySet, by int) {
	h := setHash(s.name)
	clash := func() bool { return ps.hashes[h] > 1 || h == 0 && ps.hashes[h] > 0 }
	was := clash()
	if ps.hashes[h] += by; ps.hashes[h] == 0 {
		delete(ps.hashes, h)
	}
	if is := clash(); is && !was {
		ps.clashes++
	} else if was && !is {
		ps.clashes--
	}
}

func freeSetID(id desired.PolicySetID, taken set[desired.PolicySetID]) desired.PolicySetID {
	for {
		if _, used := taken[id]; !used && id != 0 {
			return id
		}
		id++
	}
}

// use moves a subject to a set.
func (ps *policySets) use(s *subject, next *policySet) {
	if s.set == next {
		return
	}
	old := s.set
	if s.set = next; next != nil {
		next.users.add(s)
	}
	if old != nil {
		delete(old.users, s)
		ps.unused.add(old)
	}
	for e := range s.ports {
		ps.dirtyEps.add(e)
	}
}
