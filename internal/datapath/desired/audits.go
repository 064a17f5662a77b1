package desired

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Audit is an audited set beside one that decides.
type Audit struct{ Set, Audited PolicySetID }

// NewAudits returns the audits of now that were not in old, or whose policy has
// changed. A change of both sets of an audit, or of the identities that rules name,
// is none of the policy. Its cost grows with what differs and, where an audited set
// does, with the number of sets.
func NewAudits(old, now Map[PolicySetID, *PolicySet]) (out []Audit) {
	changed := map[PolicySetID]bool{}
	for c := range now.Diff(old) {
		switch {
		case !c.Has:
		case c.New.Audited != "":
			changed[c.Key] = c.Had
		default:
			for _, id := range c.New.Audits {
				if !c.Had || !slices.Contains(c.Old.Audits, id) {
					out = append(out, Audit{c.Key, id})
				}
			}
		}
	}
	if len(changed) == 0 {
		return out
	}
	get := func(m Map[PolicySetID, *PolicySet], id PolicySetID) *PolicySet {
		if s, ok := m.Get(id); ok {
			return s
		}
		return &PolicySet{}
	}
	for id, base := range now.All() {
		for _, audited := range base.Audits {
			a := Audit{id, audited}
			if had, ok := changed[audited]; !ok || slices.Contains(out, a) {
				continue
			} else if !had || auditChanged(get(old, id), base, get(old, audited), get(now, audited)) {
				out = append(out, a)
			}
		}
	}
	return out
}

// auditChanged reports whether an audited set changed otherwise than the set that
// it is beside.
func auditChanged(oldBase, base, old, now *PolicySet) bool {
	for _, dir := range []model.Direction{model.In, model.Out} {
		for _, t := range model.Tiers() {
			was, is := tierOf(old, dir, t), tierOf(now, dir, t)
			baseWas, baseIs := tierOf(oldBase, dir, t), tierOf(base, dir, t)
			if was.Default != is.Default && (was.Default != baseWas.Default || is.Default != baseIs.Default) {
				return true
			}
			for c := range is.Rules.Diff(was.Rules) {
				r, of := c.New, baseIs
				if !c.Has {
					r, of = c.Old, baseWas
				}
				if both, ok := of.Rules.Get(c.Key); ok && both.Equal(r) {
					continue
				}
				if c.Had && c.Has {
					with := *c.Old
					if with.Identities = c.New.Identities; with.Equal(c.New) {
						continue
					}
				}
				return true
			}
		}
	}
	return false
}

// tierOf is a tier of a set; a tier that the set lacks says nothing.
func tierOf(s *PolicySet, dir model.Direction, t model.Tier) Tier {
	for _, x := range s.Tiers(dir) {
		if x.Tier == t {
			return x
		}
	}
	return Tier{Tier: t, Default: model.Pass}
}
