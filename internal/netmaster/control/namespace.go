package control

import (
	"context"
	"fmt"
	"maps"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// enterNamespace enters what the identities in a namespace have by its labels.
func (iv *IdentityView) enterNamespace(ch tables.Change) {
	k, old, now := iv.namespaceRows.enter(ch)
	for id := range iv.identitiesInNamespace[k] {
		r := iv.identityRecords.all[id]
		iv.indexTraits(r.In(old), false)
		iv.indexTraits(r.In(now), true)
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
