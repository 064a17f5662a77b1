package control

import (
	"cmp"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// IdentityView is the View's part with identities and the namespaces whose labels they have.
type IdentityView struct {
	mu                    *sync.RWMutex // the View's
	identityRecords       *rows[tables.IdentityKey, model.IdentityRecord]
	identitiesOf          index[model.TenantName, model.Identity]
	identitiesOfGroup     index[model.GroupKey, model.Identity]
	identitiesInNamespace index[model.NamespaceName, tables.IdentityKey]
	identitiesWith        index[identityFeature, model.Identity]
	namespaceRows         *rows[model.NamespaceName, model.Namespace]
	dictionary            map[tables.InternKey]tables.Interned
	identityUsers         map[model.Identity]int
}

func newIdentityView(mu *sync.RWMutex) *IdentityView {
	iv := &IdentityView{mu: mu}
	iv.identityRecords = newRows[tables.IdentityKey, model.IdentityRecord](mu, nil, func(a, b tables.IdentityKey) int { return cmp.Compare(a.ID, b.ID) })
	iv.namespaceRows = newRows[model.NamespaceName, model.Namespace](mu, nil, cmp.Compare[model.NamespaceName])
	iv.reset()
	return iv
}

func (iv *IdentityView) reset() {
	iv.identityRecords.reset()
	iv.identitiesOf = index[model.TenantName, model.Identity]{}
	iv.identitiesOfGroup = index[model.GroupKey, model.Identity]{}
	iv.namespaceRows.reset()
	iv.identitiesInNamespace = index[model.NamespaceName, tables.IdentityKey]{}
	iv.identitiesWith = index[identityFeature, model.Identity]{}
	iv.identityUsers = map[model.Identity]int{}
	iv.dictionary = map[tables.InternKey]tables.Interned{}
}

// enterIdentity enters what an identity stands for.
func (iv *IdentityView) enterIdentity(ch tables.Change) {
	_, old, now := iv.identityRecords.enter(ch)
	if old != nil {
		iv.indexIdentity(iv.joined(*old), false)
	}
	if now != nil {
		iv.indexIdentity(iv.joined(*now), true)
	}
}

// identity is what an identity stands for, with its namespace's labels.
func (iv *IdentityView) identity(t model.TenantName, id model.Identity) model.IdentityRecord {
	return iv.joined(iv.identityRecords.all[tables.IdentityKey{Tenant: t, ID: id}])
}

func (iv *IdentityView) indexIdentity(r model.IdentityRecord, in bool) {
	iv.identitiesOf.put(r.Network.Tenant, r.ID, in)
	iv.identitiesOfGroup.put(model.GroupKey{Tenant: r.Network.Tenant, Name: r.Group}, r.ID, in)
	if r.Namespace != "" {
		iv.identitiesInNamespace.put(r.Namespace, tables.IdentityKey{Tenant: r.Network.Tenant, ID: r.ID}, in)
	}
	iv.indexFeatures(r, in)
}

// countUser counts an endpoint that has an identity, or has it no longer.
func (iv *IdentityView) countUser(id model.Identity, in bool) {
	if in {
		iv.identityUsers[id]++
	} else if iv.identityUsers[id]--; iv.identityUsers[id] == 0 {
		delete(iv.identityUsers, id)
	}
}

// enterIntern enters where an identity is found by its contents.
func (iv *IdentityView) enterIntern(k tables.InternKey, i *tables.Interned) {
	if i != nil {
		iv.dictionary[k] = *i
	} else {
		delete(iv.dictionary, k)
	}
}

// enterIdentities enters a change of an identity, of a namespace, or of where an identity is
// found by its contents.
func (iv *IdentityView) enterIdentities(ch tables.Change) {
	switch k := ch.Key.(type) {
	case tables.IdentityKey:
		iv.enterIdentity(ch)
	case model.NamespaceName:
		iv.enterNamespace(ch)
	case tables.InternKey:
		iv.enterIntern(k, value[tables.Interned](ch))
	}
}

// enterNamespace enters what the identities in a namespace have by its labels.
func (iv *IdentityView) enterNamespace(ch tables.Change) {
	k, old, now := iv.namespaceRows.enter(ch)
	for id := range iv.identitiesInNamespace[k] {
		r := iv.identityRecords.all[id]
		iv.indexFeatures(r.In(old), false)
		iv.indexFeatures(r.In(now), true)
	}
}

// Namespaces returns the namespaces of whose labels policies know.
func (iv *IdentityView) Namespaces() []model.Namespace { return iv.namespaceRows.list("") }

// Namespace finds the row of a namespace.
func (iv *IdentityView) Namespace(k model.NamespaceName) (n model.Namespace, ok bool) {
	iv.mu.RLock()
	defer iv.mu.RUnlock()
	n, ok = iv.namespaceRows.all[k]
	return n, ok
}

// joined is a record with the labels of its namespace.
func (iv *IdentityView) joined(r model.IdentityRecord) model.IdentityRecord {
	if n, ok := iv.namespaceRows.all[r.Namespace]; ok {
		return r.In(&n)
	}
	return r
}
