package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Sweep is the leader's garbage collection, until ctx ends or the leadership is lost:
// objects of kinds that this version does not keep, expired reservations, unfinished
// replacements of rules, identities with labels that no
// endpoint has, and services without an address of a family that their network has. Once in
// generationRounds it also deletes generations of scopes without a change since the time
// before.
func (re *Repair) Sweep(ctx context.Context, l Leader, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var touched store.Revision
	for round := 0; ; round++ {
		err := re.SweepOnce(ctx, l)
		if err == nil && round%generationRounds == 0 {
			touched, err = re.sweepGenerations(ctx, l, touched)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFenced):
			return err
		case err != nil:
			re.commits.log.Warn("garbage collection will be tried again", "error", err)
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
func (re *Repair) sweepGenerations(ctx context.Context, l Leader, before store.Revision) (store.Revision, error) {
	now, err := re.commits.store.CommitRevision(ctx)
	if err != nil {
		return before, fmt.Errorf("sweep generations: %w", err)
	}
	n, err := engine.SweepGenerations(ctx, re.commits.store, store.Fence(l), before)
	if err != nil {
		return before, err
	}
	if n > 0 {
		re.commits.log.Debug("swept generations of unused scopes", "count", n)
	}
	return now, nil
}

// SweepOnce does one round of Sweep. An identity takes two rounds: the first
// marks it, and an endpoint that begins to use it takes the mark off.
func (re *Repair) SweepOnce(ctx context.Context, l Leader) error {
	v, err := re.commits.View(ctx)
	if err != nil {
		return err
	}
	if err := re.sweepDropped(ctx, l, v); err != nil {
		return fmt.Errorf("sweep objects of former versions: %w", err)
	}
	if err := re.sweepReservations(ctx, l, v); err != nil {
		return fmt.Errorf("sweep reservations: %w", err)
	}
	if err := re.policies.sweepReplacements(ctx, l, v); err != nil {
		return fmt.Errorf("sweep replacements of rules: %w", err)
	}
	if err := re.sweepIdentities(ctx, l, v); err != nil {
		return fmt.Errorf("sweep identities: %w", err)
	}
	if err := re.services.completeServices(ctx, l, v); err != nil {
		return fmt.Errorf("complete services: %w", err)
	}
	return nil
}

// sweepDropped deletes objects of kinds that this version does not keep, from the store of a
// former version or its backup, and names each.
func (re *Repair) sweepDropped(ctx context.Context, l Leader, v *View) error {
	dropped := read(&v.mu, func() map[string]tables.Dropped { return maps.Clone(v.Tenants.dropped) })
	for key, d := range dropped {
		_, err := re.commits.update(ctx, l.Actor(), "delete "+d.String(), func(tx store.Tx) error {
			tx.Delete(key)
			return nil
		})
		if err != nil {
			return err
		}
		re.commits.log.Info("deleted an object of a former version: this one does not keep its kind", "object", d.String())
	}
	return nil
}

func (re *Repair) sweepReservations(ctx context.Context, l Leader, v *View) error {
	v.mu.RLock()
	var gone []tables.AddressKey
	for _, s := range v.Addresses.spaces {
		for _, o := range s.owners {
			if v.Addresses.expiredLocked(o.Address) {
				gone = append(gone, o.AddressKey)
			}
		}
	}
	v.mu.RUnlock()
	for _, k := range gone {
		_, err := re.commits.update(ctx, l.Actor(), "sweep address", func(tx store.Tx) error {
			row, err := tables.Addresses.Find(tx, k)
			if err != nil {
				return err
			}
			if row.Exists() && re.addressView.expired(row.Value) {
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
// in a former round. That is safe because the view had everything up to the mark when
// it showed that no endpoint has the number; and an endpoint that began to
// use it since has taken the mark off, which the removal compares.
func (re *Repair) sweepIdentities(ctx context.Context, l Leader, v *View) error {
	v.mu.RLock()
	var idle []tables.Interned
	kept := map[model.Identity]bool{} // by a group or a network
	for _, g := range v.Groups.groupRows.all {
		kept[g.ID] = true
	}
	for _, n := range v.Networks.networkRows.all {
		kept[n.Identity] = true
	}
	for _, i := range v.Identities.dictionary {
		if v.Identities.identityUsers[i.ID] == 0 && !kept[i.ID] {
			idle = append(idle, i)
		}
	}
	v.mu.RUnlock()
	for _, i := range idle {
		_, err := re.commits.update(ctx, l.Actor(), "sweep identity", func(tx store.Tx) error {
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
