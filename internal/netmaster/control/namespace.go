package control

import (
	"context"
	"fmt"
	"maps"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// PutNamespace records what policies can ask of a namespace. It
// writes nothing when that is there.
func (ks *Kubernetes) PutNamespace(ctx context.Context, l Leader, valid model.Valid[model.Namespace]) error {
	_, err := ks.commits.update(ctx, l.Actor(), fmt.Sprintf("record namespace %q", valid.Value().Name), func(tx store.Tx) error {
		return putNamespace(tx, valid)
	})
	return err
}

func putNamespace(tx store.Tx, valid model.Valid[model.Namespace]) error {
	return putUnless(tx, tables.Namespaces, valid, func(a, b model.Namespace) bool { return maps.Equal(a.Labels, b.Labels) })
}

// PlanNamespace is PutNamespace as a change of a plan.
func (*Kubernetes) PlanNamespace(valid model.Valid[model.Namespace]) Planned {
	ch := changeOf(rankMember, tables.Namespaces, valid.Value().Name, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return putNamespace(tx, valid)
	})
	return Planned{Put: &ch}
}

// DeleteNamespace forgets a namespace; endpoints that are in it
// still are then selected by no labels.
func (ks *Kubernetes) DeleteNamespace(ctx context.Context, l Leader, k model.NamespaceName) error {
	_, err := ks.commits.update(ctx, l.Actor(), fmt.Sprintf("forget namespace %q", k), func(tx store.Tx) error {
		tables.Namespaces.Delete(tx, k)
		return nil
	})
	return err
}
