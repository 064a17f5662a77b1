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
	n := valid.Value()
	_, err := ks.commits.update(ctx, l.Actor(), fmt.Sprintf("record namespace %q", n.Name), func(tx store.Tx) error {
		old, err := tables.Namespaces.Find(tx, n.Name)
		if err != nil || old.Exists() && maps.Equal(old.Value.Labels, n.Labels) {
			return err
		}
		return tables.Namespaces.Put(tx, n)
	})
	return err
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
