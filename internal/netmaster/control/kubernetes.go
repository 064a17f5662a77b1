package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Kubernetes keeps the rows that only the controllers of Kubernetes' objects write, as the
// leader: namespaces, services and the addresses of its load balancers.
// It has no state of its own.
type Kubernetes struct {
	commits        *Committer
	ownerView      *AddressOwnerView
	kubernetesView *KubernetesView
}

// FollowKubernetes records that the store follows a Kubernetes, and returns which one it
// followed before. Where that is another one it stays so, unless instead.
func (ks *Kubernetes) FollowKubernetes(ctx context.Context, a Actor, valid model.Valid[model.KubernetesCluster], instead bool) (before model.KubernetesCluster, err error) {
	if err := valid.Err(); err != nil {
		return before, err
	}
	_, err = ks.commits.update(ctx, a, "record which Kubernetes is followed", func(tx store.Tx) error {
		row, err := tables.KubernetesClusters.Find(tx, tables.KubernetesClusterKey{})
		if err != nil {
			return err
		}
		before = row.Value
		if row.Exists() && (before == valid.Value() || !instead) {
			return nil
		}
		return tables.KubernetesClusters.Put(tx, valid.Value())
	})
	return before, err
}
