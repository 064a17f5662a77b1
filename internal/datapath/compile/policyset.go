package compile

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// policySet is the whole policy of subjects to whom the same policies apply. Its
// name says what is in it, so that it does not matter how it came about.
type policySet struct {
	name     string
	policies []*policy         // enforced
	ports    []model.NamedPort // what its subjects call ports, where a policy names any
	audits   []*policySet      // each with one more policy
	control  *network          // whose control tier it has; nil = none
	apart    *network          // whose tiers that keep tenants apart it has; nil = none
	shut     string            // id of the rule that denies everything instead
	users    set[*subject]     // empty when it is only there as an audit of others
	refs     int               // how many sets have it as an audit

	rebuild bool
	in, out []tierRules
	id      desired.PolicySetID
	pic     *desired.PolicySet
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

// setOf returns the set of a plan, made when it is not there; nil when no policy
// applies.
func (c *Compiler) setOf(s *subject, p plan) *policySet {
	tenant := string(s.key.network.Tenant)
	if p.shut != "" {
		who := model.GroupKey{Tenant: s.key.network.Tenant, Name: s.key.group}.String()
		if s.group == nil {
			who = s.key.network.String()
		}
		return c.makeSet(who+"/"+p.shut, plan{}, "shut/"+who)
	}
	if len(p.enforced) == 0 && len(p.audited) == 0 && p.control == nil && p.apart == nil {
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
	if p.apart != nil {
		name += " apart on " + string(p.apart.key.Name)
	}
	set := c.sets[name]
	if set != nil {
		return set
	}
	set = c.makeSet(name, p, "")
	for _, a := range p.audited {
		with := plan{control: p.control, apart: p.apart, ports: p.ports, enforced: append(slices.Clone(p.enforced), a)}
		slices.SortFunc(with.enforced, func(a, b *policy) int { return cmp.Compare(a.key.Name, b.key.Name) })
		beside := c.setOf(s, with)
		beside.refs++
		set.audits = append(set.audits, beside)
	}
	return set
}

func (c *Compiler) makeSet(name string, p plan, shut string) *policySet {
	if old := c.sets[name]; old != nil {
		return old
	}
	set := &policySet{name: name, policies: p.enforced, ports: p.ports, control: p.control, apart: p.apart, shut: shut, users: set[*subject]{}, rebuild: true}
	c.sets[name] = set
	c.dirtySets.add(set)
	for _, x := range p.enforced {
		x.sets.add(set)
		c.useRules(x)
	}
	c.countHash(set, 1)
	return set
}

// sweepSets takes out the sets that nobody has when all subjects have theirs.
func (c *Compiler) sweepSets() {
	for len(c.unused) > 0 {
		for s := range c.unused {
			delete(c.unused, s)
			if len(s.users) > 0 || s.refs > 0 {
				continue
			}
			delete(c.sets, s.name)
			delete(c.dirtySets, s)
			c.countHash(s, -1)
			for _, x := range s.policies {
				delete(x.sets, s)
				c.useRules(x)
			}
			for _, a := range s.audits {
				a.refs--
				c.unused.add(a)
			}
			if s.pic != nil {
				c.out.PolicySets = c.out.PolicySets.Delete(s.id)
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
		s.in = append(s.in, s.unite(tier, of, model.In))
		s.out = append(s.out, s.unite(tier, of, model.Out))
	}
	s.rebuild = false
}

func (s *policySet) unite(tier model.Tier, of []*policy, dir model.Direction) tierRules {
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
	for _, a := range []model.Action{model.Allow, model.Deny} { // the last is the strongest
		if said[a] {
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

// picture makes what drivers get of a set.
func (c *Compiler) picture(s *policySet) *desired.PolicySet {
	out := &desired.PolicySet{ID: s.id, Name: s.name}
	for _, p := range s.policies {
		if p.rec.Audit {
			out.Audited = p.key.String()
		}
	}
	if s.shut != "" {
		tier := []desired.Tier{{
			Tier:    model.TierContiv,
			Rules:   desired.RulesOf(desired.Rule{ID: s.shut, Priority: 100, Action: model.Deny, AnyPeer: true}),
			Default: model.Deny,
		}}
		out.In, out.Out = tier, tier
		return out
	}
	var last []desired.Tier
	if s.apart != nil {
		out.In, out.Out, last = c.apartTiers(s.apart)
	}
	if s.control != nil {
		out.Out = append(c.controlTier(s.control.rec), out.Out...)
	}
	tiers := func(list []tierRules, to []desired.Tier) []desired.Tier {
		for _, t := range list {
			if t.rules.Len() > 0 || t.def != model.Pass {
				to = append(to, desired.Tier{Tier: t.tier, Rules: t.rules, Default: t.def, DefaultOf: t.defOf})
			}
		}
		return to
	}
	out.In, out.Out = append(tiers(s.in, out.In), last...), tiers(s.out, out.Out)
	for _, a := range s.audits {
		out.Audits = append(out.Audits, a.id)
	}
	return out
}

// compileSets writes the changed sets, and marks the ports of sets that have got
// another number.
func (c *Compiler) compileSets(before desired.Host) {
	moved := c.numberSets()
	for s := range moved {
		c.dirtySets.add(s)
		for u := range s.users {
			for e := range u.ports {
				c.dirtyEps.add(e)
			}
		}
	}
	for s := range c.dirtySets {
		if s.rebuild {
			s.build()
		}
		s.pic = c.picture(s)
		if same, ok := before.PolicySets.Get(s.id); ok && same.Equal(s.pic) {
			s.pic = same
		}
		c.out.PolicySets = c.out.PolicySets.Set(s.id, s.pic)
	}
}

// setHash is a variable so that a test can make collisions.
var setHash = func(name string) desired.PolicySetID {
	h := fnv.New32a()
	h.Write([]byte(name))
	return desired.PolicySetID(h.Sum32())
}

// countHash keeps count of the names that have a hash; they clash when several
// have one, or when it is no number.
func (c *Compiler) countHash(s *policySet, by int) {
	h := setHash(s.name)
	clash := func() bool { return c.hashes[h] > 1 || h == 0 && c.hashes[h] > 0 }
	was := clash()
	if c.hashes[h] += by; c.hashes[h] == 0 {
		delete(c.hashes, h)
	}
	if is := clash(); is && !was {
		c.clashes++
	} else if was && !is {
		c.clashes--
	}
}

// numberSets gives each set its number and returns those whose number is another
// one now: a hash of the name or, where names clash, the next free one in order of
// all names. So numbers depend on the present sets only.
func (c *Compiler) numberSets() set[*policySet] {
	moved := set[*policySet]{}
	give := func(s *policySet, id desired.PolicySetID) {
		if s.id == id {
			return
		}
		if s.pic != nil {
			c.out.PolicySets = c.out.PolicySets.Delete(s.id)
			s.pic = nil
		}
		s.id = id
		moved.add(s)
	}
	if c.clashes > 0 || c.clashed { // rare: whose audits moved does not matter
		for _, s := range c.sets {
			if len(s.audits) > 0 {
				c.dirtySets.add(s)
			}
		}
	}
	switch {
	case c.clashes > 0:
		taken := set[desired.PolicySetID]{}
		for _, name := range slices.Sorted(maps.Keys(c.sets)) {
			id := freeSetID(setHash(name), taken)
			taken.add(id)
			give(c.sets[name], id)
		}
	case c.clashed:
		for name, s := range c.sets {
			give(s, setHash(name))
		}
	default:
		for s := range c.dirtySets {
			give(s, setHash(s.name))
		}
	}
	c.clashed = c.clashes > 0
	return moved
}

func freeSetID(id desired.PolicySetID, taken set[desired.PolicySetID]) desired.PolicySetID {
	for {
		if _, used := taken[id]; !used && id != 0 {
			return id
		}
		id++
	}
}
