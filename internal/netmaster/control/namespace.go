package control

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	namespaceRows         = newRowsPart[model.NamespaceName, model.Namespace](nil, cmp.Compare[model.NamespaceName])
	identitiesInNamespace = newPart(func() index[model.NamespaceName, tables.IdentityKey] {
		return index[model.NamespaceName, tables.IdentityKey]{}
	})

	_ = register(namespaceRows, enterNamespace, kind{})
)

// enterNamespace enters what the identities in a namespace have by its labels.
func enterNamespace(v *View, k model.NamespaceName, old, now *model.Namespace, _ store.Revision) {
	for id := range identitiesInNamespace.in(v)[k] {
		r := identityRecords.in(v).all[id]
		indexTraits(v, r.In(old), false)
		indexTraits(v, r.In(now), true)
	}
}

// Namespaces returns the namespaces of whose labels policies know.
func (v *View) Namespaces() []model.Namespace { return namespaceRows.list(v, "") }

// Namespace finds the row of a namespace.
func (v *View) Namespace(k model.NamespaceName) (n model.Namespace, ok bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n, ok = namespaceRows.in(v).all[k]
	return n, ok
}

// joined is a record with the labels of its namespace.
func (v *View) joined(r model.IdentityRecord) model.IdentityRecord {
	if n, ok := namespaceRows.in(v).all[r.Namespace]; ok {
		return r.In(&n)
	}
	return r
}

// PutNamespace records what policies can ask of a namespace, for the leader, who
// has the fence. It writes nothing when that is there.
func (ks *Kubernetes) PutNamespace(ctx context.Context, fence store.Fence, valid model.Valid[model.Namespace]) error {
	n := valid.Value()
	_, err := ks.commits.update(ctx, fmt.Sprintf("record namespace %q", n.Name), func(tx store.Tx) error {
		fence.Require(tx)
		old, err := tables.Namespaces.Find(tx, n.Name)
		if err != nil || old.Exists() && maps.Equal(old.Value.Labels, n.Labels) {
			return err
		}
		return tables.Namespaces.Put(tx, n)
	})
	return err
}

// DeleteNamespace forgets a namespace, for the leader; endpoints that are in it
// still are then selected by no labels.
func (ks *Kubernetes) DeleteNamespace(ctx context.Context, fence store.Fence, k model.NamespaceName) error {
	_, err := ks.commits.update(ctx, fmt.Sprintf("forget namespace %q", k), func(tx store.Tx) error {
		fence.Require(tx)
		tables.Namespaces.Delete(tx, k)
		return nil
	})
	return err
}
