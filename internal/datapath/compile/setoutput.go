package compile

import (
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// setOutput numbers policy sets and writes them.
//
// Takes: marked sets with the rules of their policies; tiers of routing and the control
// plane.
// Gives: PolicySets; marks the ports of sets that have got another number.
type setOutput struct {
	clashed bool // names of sets clashed at the last Compile

	sets      *policySets
	routing   *routing
	control   *ControlPlane
	out       *output
	dirtySets *marks[*policySet]
	dirtyEps  *marks[*endpoint]
}

// build makes what drivers get of a set.
func (so *setOutput) build(s *policySet) *desired.PolicySet {
	out := &desired.PolicySet{ID: s.id, Name: s.name}
	for _, p := range s.policies {
		if p.rec.Audit {
			out.Audited = p.key.String()
		}
	}
	if s.denyAllRule != "" {
		tier := []desired.Tier{{
			Tier:    model.TierContiv,
			Rules:   desired.RulesOf(desired.Rule{ID: s.denyAllRule, Priority: 100, Action: model.Deny, AnyPeer: true}),
			Default: model.Deny,
		}}
		out.In, out.Out = tier, tier
		return out
	}
	var last []desired.Tier
	if s.isolatedNetwork != nil {
		out.In, out.Out, last = so.routing.isolationTiers(s.isolatedNetwork)
	}
	if s.control != nil {
		out.Out = append(so.control.tier(s.control.rec), out.Out...)
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

// compile writes the changed sets, and marks the ports of sets that have got
// another number.
func (so *setOutput) compile() {
	if len(so.dirtySets.of) == 0 && so.sets.clashes == 0 && !so.clashed {
		return
	}
	moved := so.number()
	for s := range moved {
		so.dirtySets.add(s)
		for u := range s.users {
			for e := range u.ports {
				so.dirtyEps.add(e)
			}
		}
	}
	for s := range so.dirtySets.of {
		if s.rebuild {
			s.build()
		}
		s.compiled = so.build(s)
		if same, ok := so.out.before.PolicySets.Get(s.id); ok && same.Equal(s.compiled) {
			s.compiled = same
		}
		so.out.PolicySets = so.out.PolicySets.Set(s.id, s.compiled)
	}
}

// number gives each set its number and returns those whose number is another
// one now: a hash of the name or, where names clash, the next free one in order of
// all names. So numbers depend on the present sets only.
func (so *setOutput) number() set[*policySet] {
	moved := set[*policySet]{}
	give := func(s *policySet, id desired.PolicySetID) {
		if s.id == id {
			return
		}
		if s.compiled != nil {
			so.out.PolicySets = so.out.PolicySets.Delete(s.id)
			s.compiled = nil
		}
		s.id = id
		moved.add(s)
	}
	if so.sets.clashes > 0 || so.clashed { // rare: whose audits moved does not matter
		for _, s := range so.sets.all {
			if len(s.audits) > 0 {
				so.dirtySets.add(s)
			}
		}
	}
	switch {
	case so.sets.clashes > 0:
		taken := set[desired.PolicySetID]{}
		for _, name := range slices.Sorted(maps.Keys(so.sets.all)) {
			id := freeSetID(setHash(name), taken)
			taken.add(id)
			give(so.sets.all[name], id)
		}
	case so.clashed:
		for name, s := range so.sets.all {
			give(s, setHash(name))
		}
	default:
		for s := range so.dirtySets.of {
			give(s, setHash(s.name))
		}
	}
	so.clashed = so.sets.clashes > 0
	return moved
}
