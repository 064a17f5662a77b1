package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// batch is how many objects one transaction of a clean-up removes: at most eight
// operations each, of store.MinOps, with the scope that an endpoint touches.
const batch = 6

// DeleteEndpointsOfNetwork deletes all endpoints of a network and tells how
// many there were.
func (es *Endpoints) DeleteEndpointsOfNetwork(ctx context.Context, a Actor, k model.NetworkKey) (int, store.Revision, error) {
	v, err := es.commits.View(ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, ok := v.Networks.Get(k); !ok {
		return 0, 0, model.Errorf(model.ErrNotFound, "network %q does not exist", k)
	}
	u := es.commits.as(a)
	n, err := es.deleteEndpoints(ctx, u, v.Endpoints.OfNetwork(k), nil)
	return n, u.rev, err
}

// DeleteEndpointsOfGroup deletes all endpoints of a group and tells how many
// there were.
func (es *Endpoints) DeleteEndpointsOfGroup(ctx context.Context, a Actor, k model.GroupKey) (int, store.Revision, error) {
	v, err := es.commits.View(ctx)
	if err != nil {
		return 0, 0, err
	}
	if _, ok := v.Groups.Get(k); !ok {
		return 0, 0, model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", k)
	}
	u := es.commits.as(a)
	n, err := es.deleteEndpoints(ctx, u, v.Endpoints.OfGroup(k), nil)
	return n, u.rev, err
}

// deleteEndpoints deletes the endpoints that are still as they were. Each
// of its transactions fails if may refuses; nil = it never does.
func (es *Endpoints) deleteEndpoints(ctx context.Context, u *usecase, eps []model.Endpoint, may func(store.Tx) error) (int, error) {
	deleted := 0
	for len(eps) > 0 {
		some := eps[:min(batch, len(eps))]
		eps = eps[len(some):]
		n := 0
		_, err := u.update(ctx, "delete endpoints", func(tx store.Tx) error {
			n = 0
			if may != nil {
				if err := may(tx); err != nil {
					return err
				}
			}
			keys := make([]string, len(some))
			for i, e := range some {
				keys[i] = tables.Endpoints.Key(e.Key)
			}
			if err := tx.Prefetch(keys...); err != nil {
				return err
			}
			for _, e := range some {
				row, err := tables.Endpoints.Find(tx, e.Key)
				if err != nil {
					return err
				}
				if row.Exists() && row.Value.Host == e.Host && row.Value.MAC == e.MAC {
					if err := es.removeEndpoint(tx, row.Value); err != nil {
						return err
					}
					n++
				}
			}
			return nil
		})
		if err != nil {
			return deleted, err
		}
		deleted += n
	}
	return deleted, nil
}
