package compile

import (
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// selections has the selectors that rules and policies use, each with the identities that
// it selects.
//
// Takes: identities of tenants; which selectors rules and policies use; groups and
// networks whose rows have come or gone.
// Gives: selections to policies and rules; marks rules, tenants.
type selections struct {
	selecting map[peerRef]set[*selection] // selections that name a group or network

	inv             *inventory
	dirtySelections *marks[*selection]
	dirtyRules      *marks[*rule]
	dirtyTenants    *marks[*tenant]
}

// compile updates what the marked selections mean to rules that deny, and marks the rules
// that have them.
func (ss *selections) compile() {
	for s := range ss.dirtySelections.of {
		s.include()
		for r := range s.rules {
			ss.dirtyRules.add(r)
		}
	}
}

// selection is the identities that a selector selects. Selectors with the same
// text share one, which holds the identities in one persistent set: rules have
// that set as it is, and a change of it costs what it touches.
type selection struct {
	// selections:
	tenant   *tenant
	text     string
	selector model.Selector
	ids      desired.Identities // with a record
	denied   desired.Identities // ids, and identities that it may mean, for rules that deny; as of the last Compile

	// rules:
	rules set[*rule] // compiled ones that have it as a peer

	// policies:
	policies set[*policy] // that apply to it
}

// term is one thing that an identity has: its network, its group, a label, a
// label's key; the zero value is that it exists.
type term struct {
	kind termKind
	a, b string
}

type termKind uint8

const (
	termAll termKind = iota
	termNetwork
	termGroup
	termKey
	termLabel
	termNamespaceKey // labels of its namespace
	termNamespaceLabel
	termPort // a name of a port
)

// termsOf returns all that an identity has.
func termsOf(r *model.IdentityRecord) []term {
	out := make([]term, 0, 3+2*len(r.Labels))
	out = append(out, term{}, term{termNetwork, string(r.Network.Name), ""})
	if r.Group != "" {
		out = append(out, term{termGroup, string(r.Group), ""})
	}
	for k, v := range r.Labels {
		out = append(out, term{termKey, k, ""}, term{termLabel, k, v})
	}
	for k, v := range r.NamespaceLabels {
		out = append(out, term{termNamespaceKey, k, ""}, term{termNamespaceLabel, k, v})
	}
	for _, p := range r.Ports {
		out = append(out, term{termPort, p.Name, ""})
	}
	return out
}

// indexTerms returns terms of which an identity must have one to be selected: the
// fewest values of a label, else the group, a label's key, the network, else nothing.
func indexTerms(s model.Selector) []term {
	var labels, keys []term
	consider := func(all []model.Requirement, key, label termKind) {
		for _, r := range all {
			switch {
			case r.Operator == model.OpIn && (labels == nil || len(r.Values) < len(labels)):
				labels = []term{}
				for _, v := range r.Values {
					labels = append(labels, term{label, r.Key, v})
				}
			case r.Operator == model.OpExists && keys == nil:
				keys = []term{{key, r.Key, ""}}
			}
		}
	}
	consider(s.Requirements(), termKey, termLabel)
	consider(s.OfNamespace(), termNamespaceKey, termNamespaceLabel)
	switch {
	case labels != nil:
		return labels
	case s.Group != "":
		return []term{{termGroup, string(s.Group), ""}}
	case keys != nil:
		return keys
	case s.Network != "":
		return []term{{termNetwork, string(s.Network), ""}}
	}
	return []term{{}}
}

// matching yields the identities that a selector selects, looking at the fewest
// that can be.
func (t *tenant) matching(s model.Selector) (out desired.Identities) {
	from := indexTerms(s)
	if s.Group != "" {
		n := 0
		for _, a := range from {
			n += len(t.postings[a])
		}
		if g := (term{termGroup, string(s.Group), ""}); len(t.postings[g]) < n {
			from = []term{g}
		}
	}
	for _, a := range from {
		for id := range t.postings[a] {
			if s.Selects(*t.records[id]) {
				out = out.With(id)
			}
		}
	}
	return out
}

// get returns the selection of a selector, made when it is not there.
// The caller enters what asks into its rules or policies, or releases it.
func (ss *selections) get(s model.Selector) *selection {
	t, text := ss.inv.tenant(s.Tenant), s.String()
	if old := t.selections[text]; old != nil {
		return old
	}
	sel := &selection{tenant: t, text: text, selector: s, ids: t.matching(s), rules: set[*rule]{}, policies: set[*policy]{}}
	sel.include()
	t.selections[text] = sel
	for _, a := range indexTerms(s) {
		addTo(t.byTerm, a, sel)
	}
	for _, ref := range peerRefs(s) {
		addTo(ss.selecting, ref, sel)
	}
	return sel
}

// release forgets a selection when no rule or policy has it any more.
func (ss *selections) release(sel *selection) {
	t := sel.tenant
	if len(sel.rules) > 0 || len(sel.policies) > 0 || t.selections[sel.text] != sel {
		return
	}
	delete(t.selections, sel.text)
	ss.dirtySelections.remove(sel)
	for _, a := range indexTerms(sel.selector) {
		removeFrom(t.byTerm, a, sel)
	}
	for _, ref := range peerRefs(sel.selector) {
		removeFrom(ss.selecting, ref, sel)
	}
	ss.dirtyTenants.add(t)
}

// update enters an identity (rec = nil: it has no record) into those selections that
// select it, and removes it from the others.
func (ss *selections) update(affected set[*selection], id model.Identity, rec *model.IdentityRecord) {
	for s := range affected {
		was, is := s.ids.Has(id), rec != nil && s.selector.Selects(*rec)
		switch {
		case was == is:
			continue
		case is:
			s.ids = s.ids.With(id)
		default:
			s.ids = s.ids.Without(id)
		}
		ss.dirtySelections.add(s)
	}
}

// include makes denied from ids, the identities without a record, and the ones whose labels
// come later.
func (s *selection) include() {
	s.denied = s.ids
	for _, id := range s.tenant.compiledOrphans {
		s.denied = s.denied.With(id)
	}
	for _, id := range s.tenant.compiledLater {
		if rec := s.tenant.records[id]; rec != nil && s.selector.WithoutLabels().Selects(*rec) {
			s.denied = s.denied.With(id)
		}
	}
}

func peerRefs(s model.Selector) (out []peerRef) {
	if s.Group != "" {
		out = append(out, peerRef{tenant: s.Tenant, group: s.Group})
	}
	if s.Network != "" {
		out = append(out, peerRef{tenant: s.Tenant, network: s.Network})
	}
	return out
}

// touchPeer makes the rules whose peers name a group or network be looked at again.
func (ss *selections) touchPeer(ref peerRef) {
	for s := range ss.selecting[ref] {
		ss.dirtySelections.add(s)
	}
}
