package compile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Identities has what identities stand for: network, group, labels, and the labels of
// their namespaces.
//
// Takes: identity and namespace rows; which identities endpoints have; whether policies
// ask for labels.
// Gives: the records and unknown identities of tenants, the members of selections; marks
// selections, rules, subjects, tenants.
type Identities struct {
	namespaces  map[model.NamespaceName]*model.Namespace
	inNamespace map[model.NamespaceName]set[identityOf] // by the namespace that their record names

	inv             *inventory
	selections      *selections
	problems        *problems
	dirtyTenants    *marks[*tenant]
	dirtySelections *marks[*selection]
	dirtyRules      *marks[*rule]
	dirtySubjects   *marks[*subject]
}

// compile finds the identities of the marked tenants that have endpoints but no record,
// and the ones that get their labels later.
func (ids *Identities) compile() {
	for t := range ids.dirtyTenants.of {
		orphans, later := slices.Sorted(maps.Keys(t.orphans)), slices.Sorted(maps.Keys(t.later))
		same := slices.Equal(orphans, t.compiledOrphans)
		if same && slices.Equal(later, t.compiledLater) {
			continue
		}
		t.compiledOrphans, t.compiledLater = orphans, later
		maps.Copy(ids.dirtyRules.of, t.named)
		text := ""
		if len(orphans) > 0 {
			text = fmt.Sprintf("identities %d have endpoints but no record: rules that deny take them for a peer", orphans)
		}
		ids.problems.set("tenant "+string(t.name), text)
		for _, s := range t.selections {
			if !same || s.selector.UsesLabels() {
				ids.dirtySelections.add(s)
			}
		}
	}
}

func (ids *Identities) use(t *tenant, id model.Identity, by int) {
	if t.uses[id] += by; t.uses[id] == 0 {
		delete(t.uses, id)
		ids.dirtyTenants.add(t)
	}
	ids.checkOrphan(t, id)
}

func (ids *Identities) checkOrphan(t *tenant, id model.Identity) {
	_, was := t.orphans[id]
	if is := t.uses[id] > 0 && t.records[id] == nil; is != was {
		if is {
			t.orphans.add(id)
		} else {
			delete(t.orphans, id)
		}
		ids.dirtyTenants.add(t)
	}
}

func (ids *Identities) put(r model.IdentityRecord) {
	t := ids.inv.tenant(r.Network.Tenant)
	old := t.records[r.ID]
	if r = r.In(ids.namespaces[r.Namespace]); old != nil && old.Equal(r) {
		return
	}
	ids.enter(t, r.ID, old, &r)
}

// Knows reports whether an identity's record is there.
func (ids *Identities) Knows(name model.TenantName, id model.Identity) bool {
	t := ids.inv.tenants[name]
	return t != nil && t.records[id] != nil
}

func (ids *Identities) remove(name model.TenantName, id model.Identity) {
	t := ids.inv.tenant(name)
	if old := t.records[id]; old != nil {
		ids.enter(t, id, old, nil)
	}
	ids.dirtyTenants.add(t)
}

// The network and group of an endpoint whose labels come later
// (model.IdentityRecord.LabelsLater) are known. Selectors of labels do not select it, but
// rules that deny by one take it for a peer, as far as network and group allow. Its own
// ports are closed while any policy of its tenant selects by labels: other hosts may learn
// the labels a moment later than this one.

// UsesLabels reports whether a policy of a tenant selects by labels.
func (ids *Identities) UsesLabels(name model.TenantName) bool {
	t := ids.inv.tenants[name]
	return t != nil && t.labelUsers > 0
}

func policyUsesLabels(p *model.Policy) bool { return p != nil && p.Applies.UsesLabels() }

func ruleUsesLabels(r *model.PolicyRule) bool {
	return r != nil && slices.ContainsFunc(r.Peers, func(p model.Peer) bool {
		return p.Selector != nil && p.Selector.UsesLabels()
	})
}

// countLabelSelectors follows whether one of a tenant's policies or rules asks for labels.
func (ids *Identities) countLabelSelectors(name model.TenantName, before, now bool) {
	if before == now {
		return
	}
	t := ids.inv.tenant(name)
	first := t.labelUsers == 0
	if now {
		t.labelUsers++
	} else {
		t.labelUsers--
	}
	if first || t.labelUsers == 0 {
		for id := range t.later {
			ids.touch(t, id)
		}
		ids.dirtyTenants.add(t)
	}
}

// touch has the policies of an identity's ports looked at again.
func (ids *Identities) touch(t *tenant, id model.Identity) {
	for s := range t.subjects[id] {
		ids.dirtySubjects.add(s)
	}
}

// Identities name their namespace; its labels are joined to them here, so that a
// label of a namespace costs what it has of identities, and no endpoint.

// identityOf names an identity across tenants.
type identityOf struct {
	tenant model.TenantName
	id     model.Identity
}

func (ids *Identities) putNamespace(n model.Namespace) {
	if old := ids.namespaces[n.Name]; old != nil && maps.Equal(old.Labels, n.Labels) {
		return
	}
	ids.namespaces[n.Name] = &n
	ids.rejoin(n.Name)
}

func (ids *Identities) removeNamespace(name model.NamespaceName) {
	delete(ids.namespaces, name)
	ids.rejoin(name)
}

// rejoin updates the identities of a namespace.
func (ids *Identities) rejoin(name model.NamespaceName) {
	for of := range ids.inNamespace[name] {
		t := ids.inv.tenant(of.tenant)
		old := t.records[of.id]
		now := old.In(ids.namespaces[name])
		ids.enter(t, of.id, old, &now)
	}
}

// enter replaces an identity's record (nil = none) in all indexes.
func (ids *Identities) enter(t *tenant, id model.Identity, old, rec *model.IdentityRecord) {
	affected := set[*selection]{} // whose members it may have been or become
	if old != nil {
		for _, m := range termsOf(old) {
			removeFrom(t.postings, m, id)
			maps.Copy(affected, t.byTerm[m])
		}
	}
	if old != nil && old.Namespace != "" {
		removeFrom(ids.inNamespace, old.Namespace, identityOf{t.name, id})
	}
	if rec != nil && rec.Namespace != "" {
		addTo(ids.inNamespace, rec.Namespace, identityOf{t.name, id})
	}
	if old != nil && len(old.Ports) > 0 || rec != nil && len(rec.Ports) > 0 {
		maps.Copy(ids.dirtyRules.of, t.named)
	}
	if old != nil && rec != nil && old.LabelsUnknown() && rec.LabelsUnknown() { // a peer as far as what is known of it allows
		for _, s := range t.selections {
			if s.selector.UsesLabels() {
				ids.dirtySelections.add(s)
			}
		}
	}
	delete(t.records, id)
	delete(t.later, id)
	if rec != nil {
		if rec.LabelsUnknown() {
			t.later.add(id)
		}
		t.records[id] = rec
		for _, m := range termsOf(rec) {
			addTo(t.postings, m, id)
			maps.Copy(affected, t.byTerm[m])
		}
	}
	ids.selections.update(affected, id, rec)
	ids.touch(t, id)
	ids.dirtyTenants.add(t)
	ids.checkOrphan(t, id)
}
