package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// policyPlans decides which policies apply to a subject, and gives it the policy set of these.
//
// Takes: marked subjects; groups, selections, identities, settings, routing, the control
// plane.
// Gives: the plan of each subject to sets; marks sets.
type policyPlans struct {
	subjects *subjects
	sets     *policySets
	inv      *inventory
	settings *settings
	routing  *routing
	control  *ControlPlane
	problems *problems

	dirtySubjects *marks[*subject]
	dirtySets     *marks[*policySet]
}

// compile gives the changed subjects the sets of the policies that apply
// to them.
func (pl *policyPlans) compile() {
	if pl.control.takeChange() {
		for _, s := range pl.subjects.all {
			pl.dirtySubjects.add(s)
		}
	}
	for s := range pl.dirtySubjects.of {
		p := pl.of(s)
		pl.problems.set(s.problemObject(), p.problem)
		next := pl.sets.of(s, p)
		if next != nil && next == s.set && (next.control != nil || next.isolatedNetwork != nil) {
			pl.dirtySets.add(next) // the control plane may be elsewhere, other tenants' networks be others
			for _, a := range next.audits {
				pl.dirtySets.add(a)
			}
		}
		pl.sets.use(s, next)
	}
}

// plan says which policies apply to a subject: what its set is made of.
type plan struct {
	enforced, audited []*policy // sorted by key
	denyReason        string    // why everything is denied instead
	problem           string
	control           *network          // whose control tier its ports have
	ports             []model.NamedPort // those of the subject, where a policy names ports
	isolatedNetwork   *network          // whose tiers keep its ports from other tenants
}

func (pl *policyPlans) of(s *subject) (p plan) {
	if s.group != nil {
		if p.denyReason = s.group.denyReason; p.denyReason != "" {
			return p
		}
		for _, x := range s.group.active {
			p.add(x)
		}
	}
	t := pl.inv.tenant(s.key.network.Tenant)
	switch rec := t.records[s.key.identity]; {
	case rec == nil:
		pl.unknown(s, t, &p)
	case rec.LabelsUnknown() && t.labelUsers > 0:
		p.denyReason = "labels that are told later"
	default:
		for _, m := range termsOf(rec) {
			for sel := range t.byTerm[m] {
				if sel.ids.Has(rec.ID) {
					p.addAll(sel)
				}
			}
		}
	}
	if p.denyReason != "" {
		return p
	}
	byName := func(a, b *policy) int { return cmp.Compare(a.key.Name, b.key.Name) }
	slices.SortFunc(p.enforced, byName)
	slices.SortFunc(p.audited, byName)
	p.enforced, p.audited = slices.Compact(p.enforced), slices.Compact(p.audited)
	if !s.key.host && len(pl.control.tier(s.net.rec)) > 0 { // the host may command the cluster
		p.control = s.net
	}
	names := func(x *policy) bool { return x.named > 0 }
	if rec := t.records[s.key.identity]; rec != nil && (slices.ContainsFunc(p.enforced, names) || slices.ContainsFunc(p.audited, names)) {
		p.ports = rec.Ports
	}
	if pl.settings.routes() && pl.routing.shares(t.name) && (s.group == nil || !s.group.fabric) { // no segment is joined
		p.isolatedNetwork = s.net
	}
	return p
}

// unknown makes the plan of a subject whose labels are unknown, by its network
// and group: a policy that asks for labels besides may or may not apply, so that
// everything is denied.
func (pl *policyPlans) unknown(s *subject, t *tenant, p *plan) {
	known := model.IdentityRecord{Network: s.key.network, Group: s.key.group}
	for _, sel := range t.selections {
		switch {
		case len(sel.policies) == 0 || !sel.selector.WithoutLabels().Selects(known):
		case sel.selector.UsesLabels():
			p.denyReason = cmp.Or(p.denyReason, "unknown labels")
			p.problem = fmt.Sprintf("the labels of identity %d are unknown, and policies ask for labels: they deny everything", s.key.identity)
		default:
			p.addAll(sel)
		}
	}
}

func (p *plan) addAll(s *selection) {
	for x := range s.policies {
		p.add(x)
	}
}

func (p *plan) add(x *policy) {
	switch {
	case x.malformed != "" && (p.denyReason == "" || "policy "+string(x.key.Name) < p.denyReason):
		p.denyReason = "policy " + string(x.key.Name)
	case x.malformed != "":
	case x.rec.Audit:
		p.audited = append(p.audited, x)
	default:
		p.enforced = append(p.enforced, x)
	}
}

func (s *subject) problemObject() string {
	return fmt.Sprintf("%s with identity %d", s.key, s.key.identity)
}
