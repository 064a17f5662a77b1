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
	identitiesWith        index[trait, model.Identity]
	namespaceRows         *rows[model.NamespaceName, model.Namespace]
	interned              map[tables.InternKey]tables.Interned
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
	iv.identitiesWith = index[trait, model.Identity]{}
	iv.identityUsers = map[model.Identity]int{}
	iv.interned = map[tables.InternKey]tables.Interned{}
}
