package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// batch is how many objects one transaction of a clean-up removes: at most eight
// operations each, of store.MinOps, with the scope that an endpoint touches.
const batch = 6

// DeleteEndpointsOfNetwork deletes all endpoints of a network and tells how
// many there were.
func (c *Controller) DeleteEndpointsOfNetwork(ctx context.Context, k model.NetworkKey) (int, error) {
	v, err := c.View(ctx)
	if err != nil {
		return 0, err
	}
	if _, ok := v.Network(k); !ok {
		return 0, model.Errorf(model.ErrNotFound, "network %q does not exist", k)
	}
	return c.deleteEndpoints(ctx, v.EndpointsOfNetwork(k), nil)
}

// DeleteEndpointsOfGroup deletes all endpoints of a group and tells how many
// there were.
func (c *Controller) DeleteEndpointsOfGroup(ctx context.Context, k model.GroupKey) (int, error) {
	v, err := c.View(ctx)
	if err != nil {
		return 0, err
	}
	if _, ok := v.Group(k); !ok {
		return 0, model.Errorf(model.ErrNotFound, "endpoint group %q does not exist", k)
	}
	return c.deleteEndpoints(ctx, v.EndpointsOfGroup(k), nil)
}

// deleteEndpoints deletes those of the endpoints that are still as they were. Each
// of its transactions asks first (nil = nobody) whether it may, and fails if not.
func (c *Controller) deleteEndpoints(ctx context.Context, eps []model.Endpoint, may func(store.Tx) error) (int, error) {
	deleted := 0
	for len(eps) > 0 {
		some := eps[:min(batch, len(eps))]
		eps = eps[len(some):]
		n := 0
		_, err := c.update(ctx, "delete endpoints", func(tx store.Tx) error {
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
					if err := c.removeEndpoint(tx, row.Value); err != nil {
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

// Sweep is the leader's garbage collection, until ctx ends or the leadership
// is lost: reservations that have expired, replacements of rules that were left
// unfinished, identities with labels that no endpoint has, services without an
// address of a family that their network has, and, once in
// generationRounds, generations of scopes that nobody has touched since the time
// before.
func (c *Controller) Sweep(ctx context.Context, fence store.Fence, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var touched store.Revision
	for round := 0; ; round++ {
		err := c.SweepOnce(ctx, fence)
		if err == nil && round%generationRounds == 0 {
			touched, err = c.sweepGenerations(ctx, fence, touched)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFenced):
			return err
		case err != nil:
			c.log.Warn("garbage collection will be tried again", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// generationRounds is how many rounds a scope's generation stays at least after
// its last use: those in use would only be made again.
const generationRounds = 60

// sweepGenerations returns the revision that the next time begins at.
func (c *Controller) sweepGenerations(ctx context.Context, fence store.Fence, before store.Revision) (store.Revision, error) {
	now, err := c.store.CommitRevision(ctx)
	if err != nil {
		return before, fmt.Errorf("sweep generations: %w", err)
	}
	n, err := engine.SweepGenerations(ctx, c.store, fence, before)
	if err != nil {
		return before, err
	}
	if n > 0 {
		c.log.Debug("swept generations of scopes that nobody uses", "count", n)
	}
	return now, nil
}

// SweepOnce does one round of Sweep. An identity takes two rounds: the first
// marks it, and an endpoint that begins to use it takes the mark off.
func (c *Controller) SweepOnce(ctx context.Context, fence store.Fence) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	if err := c.sweepReservations(ctx, fence, v); err != nil {
		return fmt.Errorf("sweep reservations: %w", err)
	}
	if err := c.sweepReplacements(ctx, fence, v); err != nil {
		return fmt.Errorf("sweep replacements of rules: %w", err)
	}
	if err := c.sweepIdentities(ctx, fence, v); err != nil {
		return fmt.Errorf("sweep identities: %w", err)
	}
	if err := c.completeServices(ctx, fence, v); err != nil {
		return fmt.Errorf("complete services: %w", err)
	}
	return nil
}

func (c *Controller) sweepReservations(ctx context.Context, fence store.Fence, v *View) error {
	v.mu.RLock()
	var gone []tables.AddressKey
	for _, s := range v.spaces {
		for _, o := range s.owners {
			if c.expiredLocked(o.Address) {
				gone = append(gone, o.AddressKey)
			}
		}
	}
	v.mu.RUnlock()
	for _, k := range gone {
		_, err := c.update(ctx, "sweep address", func(tx store.Tx) error {
			fence.Require(tx)
			row, err := tables.Addresses.Find(tx, k)
			if err != nil {
				return err
			}
			if row.Exists() && c.expired(row.Value) {
				tables.Addresses.Delete(tx, k)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sweepIdentities marks identities that nothing has, and removes those marked
// in a former round. That is safe because the view held, when it was found that
// no endpoint has the number, everything up to the mark; and whoever began to
// use it since has taken the mark off, which the removal compares.
func (c *Controller) sweepIdentities(ctx context.Context, fence store.Fence, v *View) error {
	v.mu.RLock()
	var idle []tables.Interned
	kept := map[model.Identity]bool{} // by a group or a network
	for _, g := range groupRows.in(v).all {
		kept[g.ID] = true
	}
	for _, n := range networkRows.in(v).all {
		kept[n.Identity] = true
	}
	for _, i := range v.interned {
		if v.identityUsers[i.ID] == 0 && !kept[i.ID] {
			idle = append(idle, i)
		}
	}
	v.mu.RUnlock()
	for _, i := range idle {
		_, err := c.update(ctx, "sweep identity", func(tx store.Tx) error {
			fence.Require(tx)
			row, err := tables.InternedIdentities.Find(tx, i.InternKey)
			switch {
			case err != nil || !row.Exists() || row.Value != i:
				return err
			case i.Draining:
				forget(tx, i.InternKey, i.ID)
				return nil
			}
			row.Value.Draining = true
			return tables.InternedIdentities.Put(tx, row.Value)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
