package control

import (
	"context"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Services of an orchestrator: their rows belong to it, and its keeper alone writes
// them, as the leader.

// Reserve has WhoseAddress say of addresses whose they are, which no row of the store
// tells, as "is the address of ...".
func (ks *Kubernetes) Reserve(at map[netip.Addr]string) {
	ks.ownerView.reserve(at)
}

// NetworksChanged returns what is closed when the next network comes or goes.
func (ns *Networks) NetworksChanged() <-chan struct{} {
	return ns.networkView.networksChanged.Next()
}

// refuseServiceRanges refuses a subnet that overlaps a range of the orchestrator's services.
func refuseServiceRanges(tx store.Tx, field string, p netip.Prefix) error {
	row, err := tables.ServiceRanges.Find(tx, tables.ServiceRangesKey{})
	if err != nil {
		return err
	}
	if r, overlaps := row.Value.Overlapping(p); overlaps {
		return model.Errorf(model.ErrConflict, "%s %q: overlaps %s, Kubernetes' range of service addresses; choose another subnet", field, p, r)
	}
	return nil
}

// ClusterRows are rows of an orchestrator's services to be written, and to be deleted.
type ClusterRows struct {
	Services []model.Valid[model.Service]
	Slices   []model.Valid[model.ServiceSlice]
	Nodes    []model.Valid[model.ClusterNode]

	NoServices []model.ClusterServiceKey
	NoSlices   []model.ServiceSliceKey
	NoNodes    []model.NodeName
}

// PutClusterRows writes and deletes rows of an orchestrator's services in one commit.
// What is there as it is to be is not written.
func (ks *Kubernetes) PutClusterRows(ctx context.Context, l Leader, rows ClusterRows) error {
	_, err := ks.commits.update(ctx, l.Actor(), "record services of Kubernetes", func(tx store.Tx) error {
		if err := tx.Prefetch(rows.keys()...); err != nil {
			return err
		}
		for _, valid := range rows.Services {
			if err := putClusterService(tx, valid); err != nil {
				return err
			}
		}
		for _, valid := range rows.Slices {
			if err := putUnless(tx, tables.ServiceSlices, valid, model.ServiceSlice.Equal); err != nil {
				return err
			}
		}
		for _, valid := range rows.Nodes {
			if err := putUnless(tx, tables.ClusterNodes, valid, model.ClusterNode.Equal); err != nil {
				return err
			}
		}
		for _, k := range rows.NoServices {
			tables.ClusterServices.Delete(tx, k)
		}
		for _, k := range rows.NoSlices {
			tables.ServiceSlices.Delete(tx, k)
		}
		for _, k := range rows.NoNodes {
			tables.ClusterNodes.Delete(tx, k)
		}
		return nil
	})
	return err
}

func putClusterService(tx store.Tx, valid model.Valid[model.Service]) error {
	return putUnless(tx, tables.ClusterServices, valid, model.Service.Equal)
}

// PlanService is a service of PutClusterRows as a change of a plan.
func (*Kubernetes) PlanService(valid model.Valid[model.Service]) Planned {
	ch := changeOf(rankMember, tables.ClusterServices, tables.ClusterServices.KeyOf(valid.Value()), valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return putClusterService(tx, valid)
	})
	return Planned{Put: &ch}
}

func (r ClusterRows) keys() (keys []string) {
	for _, s := range r.Services {
		keys = append(keys, tables.ClusterServices.Key(tables.ClusterServices.KeyOf(s.Value())))
	}
	for _, s := range r.Slices {
		keys = append(keys, tables.ServiceSlices.Key(s.Value().Key))
	}
	for _, n := range r.Nodes {
		keys = append(keys, tables.ClusterNodes.Key(n.Value().Name))
	}
	return keys
}

// putUnless writes a row, unless there is an equal one.
func putUnless[K comparable, V model.Validator](tx store.Tx, t *tables.Table[K, V], valid model.Valid[V], equal func(a, b V) bool) error {
	if err := valid.Err(); err != nil {
		return err
	}
	old, err := t.Find(tx, t.KeyOf(valid.Value()))
	if err != nil || old.Exists() && equal(old.Value, valid.Value()) {
		return err
	}
	return t.Put(tx, valid.Value())
}

// PutServiceRanges records the ranges of the orchestrator's services' addresses.
// Networks that overlap one stay.
func (ks *Kubernetes) PutServiceRanges(ctx context.Context, l Leader, valid model.Valid[model.ServiceRanges]) error {
	_, err := ks.commits.update(ctx, l.Actor(), "record the ranges of services' addresses", func(tx store.Tx) error {
		return putUnless(tx, tables.ServiceRanges, valid, func(a, b model.ServiceRanges) bool { return slices.Equal(a.Ranges, b.Ranges) })
	})
	return err
}
