package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// identityFeature is what identities of a tenant have in common: a network, a label, or a
// label's key with any value.
type identityFeature struct {
	tenant     model.TenantName
	network    model.NetworkName
	key, value string
	anyValue   bool
	namespace  bool // the label is the namespace's
}

// identitiesWith finds the identities that a selector may select without a look
// at all of a tenant's.

func (iv *IdentityView) indexFeatures(r model.IdentityRecord, in bool) {
	x, t := iv.identitiesWith, r.Network.Tenant
	x.put(identityFeature{tenant: t, network: r.Network.Name}, r.ID, in)
	for _, of := range []struct {
		labels    map[string]string
		namespace bool
	}{{r.Labels, false}, {r.NamespaceLabels, true}} {
		for k, value := range of.labels {
			x.put(identityFeature{tenant: t, key: k, value: value, namespace: of.namespace}, r.ID, in)
			x.put(identityFeature{tenant: t, key: k, anyValue: true, namespace: of.namespace}, r.ID, in)
		}
	}
}

// countSelected bounds how many identities a selector selects, or will when the
// groups of its network have endpoints.
func (pv *PolicyView) countSelected(s model.Selector) int {
	n := pv.identities.selected(s)
	if k := (model.NetworkKey{Tenant: s.Tenant, Name: s.Network}); s.Network != "" && s.Group == "" {
		n = max(n, len(pv.groups.groupsOfNetwork[k])+1)
	}
	return max(n, 1)
}

// SelectsNothing reports whether a selector by labels selects none of the endpoints that its
// tenant has.
func (ev *EndpointView) SelectsNothing(s model.Selector) bool {
	return s.UsesLabels() && read(ev.mu, func() bool { return ev.identities.selected(s) == 0 }) &&
		ev.EndpointsOf(model.Owned{Kind: "tenant", Key: string(s.Tenant)}) > 0
}

// identityUnion are identities in disjoint parts.
type identityUnion []map[model.Identity]struct{}

func (m identityUnion) count() (n int) {
	for _, part := range m {
		n += len(part)
	}
	return n
}

// selected counts the identities that a selector selects. If it asks for one
// thing, they are known by number; else those are looked at that have the rarest
// of the things that it asks for.
func (iv *IdentityView) selected(s model.Selector) (n int) {
	all := identityUnion{iv.identitiesOf[s.Tenant]}
	if s.Group != "" {
		all = identityUnion{iv.identitiesOfGroup[model.GroupKey{Tenant: s.Tenant, Name: s.Group}]}
	}
	asked, ofNamespace := s.Requirements(), s.OfNamespace()
	among, things := all, len(asked)+2*len(ofNamespace) // two: not being in a namespace is no lack of a label

	consider := func(m identityUnion) {
		if m.count() <= among.count() {
			among = m
		}
	}
	if s.Network != "" {
		things++
		consider(identityUnion{iv.identitiesWith[identityFeature{tenant: s.Tenant, network: s.Network}]})
	}
	if s.Group != "" {
		things++
	}
	for _, r := range ofNamespace {
		if r.Operator == model.OpIn || r.Operator == model.OpExists {
			consider(iv.named(s.Tenant, r, true))
		}
	}
	for _, r := range asked {
		with := iv.named(s.Tenant, r, false)
		without := r.Operator == model.OpNotIn || r.Operator == model.OpDoesNotExist
		if without && things == 1 {
			return all.count() - with.count()
		}
		if !without {
			consider(with)
		}
	}
	if things <= 1 {
		return among.count()
	}
	for _, part := range among {
		for id := range part {
			if s.Selects(iv.identity(s.Tenant, id)) {
				n++
			}
		}
	}
	return n
}

// named are the identities with a label, of their own or of their namespace, that a
// requirement names.
func (iv *IdentityView) named(t model.TenantName, r model.Requirement, namespace bool) (out identityUnion) {
	x := iv.identitiesWith
	if r.Operator == model.OpExists || r.Operator == model.OpDoesNotExist {
		return identityUnion{x[identityFeature{tenant: t, key: r.Key, anyValue: true, namespace: namespace}]}
	}
	for _, value := range r.Values { // each once: Requirements sees to that
		out = append(out, x[identityFeature{tenant: t, key: r.Key, value: value, namespace: namespace}])
	}
	return out
}
