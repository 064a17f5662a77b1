package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Repair is the leader's garbage collection, and puts right what does not fit together in
// the store. It has no state of its own.
type Repair struct {
	commits     *Committer
	addressView *AddressView
	policies    *Policies
	services    *Services
}

// Repaired is what RepairOwners did about a finding.
type Repaired struct {
	OwnerFinding
	Done bool
	Err  error // why it was not put right; nil also when it had gone by itself
}

// RepairOwners puts right what Owners finds and can be put right: it frees allocations
// without an owner, and allocates again what an owner has. Each repair is a transaction of
// its own. It checks that the row was not written since, as each allocation does, and that
// the owner still has what is missing.
func (re *Repair) RepairOwners(ctx context.Context, a Actor) ([]Repaired, store.Revision, error) {
	found, err := re.Owners(ctx)
	if err != nil {
		return nil, 0, err
	}
	u := re.commits.as(a)
	var out []Repaired
	for _, kind := range []string{NoOwner, Leftover, NotAllocated} { // free what is in the way first
		for _, f := range found {
			if f.Kind != kind || !f.Repair {
				continue
			}
			r := Repaired{OwnerFinding: f}
			if kind == NotAllocated {
				r.Done, r.Err = re.reallocate(ctx, u, f)
			} else {
				r.Done, r.Err = re.freeUnowned(ctx, u, f)
			}
			if errors.Is(r.Err, model.ErrUnavailable) || ctx.Err() != nil {
				return out, u.rev, r.Err
			}
			if r.Done {
				re.commits.log.Info("repaired the store", "what", f.Text)
			}
			out = append(out, r)
		}
	}
	return out, u.rev, nil
}

// freeUnowned frees an allocation without an owner.
func (re *Repair) freeUnowned(ctx context.Context, u *usecase, f OwnerFinding) (done bool, err error) {
	_, err = u.update(ctx, "free "+f.Object, func(tx store.Tx) error {
		done = false
		kv, err := tx.Get(f.at.key)
		if err != nil {
			return err
		}
		_, ch, err := tables.Look(kv)
		if err != nil || !f.isUnchanged(kv, ch) {
			return err // somebody has it now, or it is gone: the next look will tell
		}
		done = true
		return freeEntry(tx, ch, f.at.entry)
	})
	return done && err == nil, err
}

// freeEntry takes an allocation away, as its use-case does.
func freeEntry(tx store.Tx, ch tables.Change, entry string) error {
	switch k := ch.Key.(type) {
	case tables.AddressKey:
		tables.Addresses.Delete(tx, k)
	case tables.NumberKey:
		tables.Numbers.Delete(tx, k)
	case tables.InternKey:
		tables.InternedIdentities.Delete(tx, k)
	case tables.MACKey:
		tables.ChosenMACs.Delete(tx, k)
	case tables.NameKey:
		tables.Names.Delete(tx, k)
	case tables.RefKey:
		tables.References.Delete(tx, k)
	case tables.BucketKey:
		b, _ := ch.Value.(tables.SubnetBucket)
		return removeEntry(tx, tables.Subnets, k, b, b.Subnets, entry)
	case tables.PoolsKey:
		p, _ := ch.Value.(tables.Pools)
		return removeEntry(tx, tables.GroupPools, k, p, p.Groups, model.GroupName(entry))
	case tables.PlanKey:
		p, _ := ch.Value.(tables.Plan)
		return removeEntry(tx, tables.Plans, k, p, p.Subnets, entry)
	default:
		return fmt.Errorf("free %T: it is not an allocation", ch.Key)
	}
	return nil
}

// removeEntry writes a row without one of its entries, which are this transaction's own
// copy.
func removeEntry[K, E comparable, V, X any](tx store.Tx, t *tables.Table[K, V], k K, row V, entries map[E]X, entry E) error {
	delete(entries, entry)
	if len(entries) == 0 {
		t.Delete(tx, k)
		return nil
	}
	return t.Put(tx, row)
}

// reallocate gives an owner what it has.
func (re *Repair) reallocate(ctx context.Context, u *usecase, f OwnerFinding) (done bool, err error) {
	cl := re.commits.newAllocator(u.actor)
	rev, err := u.update(ctx, fmt.Sprintf("allocate for %s again", f.Object), func(tx store.Tx) error {
		done = false
		cl.rewind()
		kv, err := tx.Get(f.at.key)
		if err != nil {
			return err
		}
		_, ch, err := tables.Look(kv)
		if err != nil || !f.isUnchanged(kv, ch) {
			return err // somebody has written it: the next look will tell
		}
		w, still, err := re.ownerStillExpects(tx, f)
		if err != nil || !still {
			return err
		}
		if f.claimedOwner != "" {
			// It says that somebody else has it, who does not: else Owners had found two.
			if err := freeEntry(tx, ch, f.at.entry); err != nil {
				return err
			}
		}
		done = true
		return w.put(ctx, tx, cl)
	})
	cl.releaseAll(rev)
	return done && err == nil, err
}

// isUnchanged reports whether a row, or its entry, is as it was when the finding was made.
func (f OwnerFinding) isUnchanged(kv store.KV, ch tables.Change) bool {
	if f.at.entry == "" {
		return kv.Mod == f.mod
	}
	return ownerIn(ch, f.at.entry) == f.claimedOwner
}

// ownerStillExpects reads the owner again, into the read set.
func (re *Repair) ownerStillExpects(tx store.Tx, f OwnerFinding) (expectedRow, bool, error) {
	kv, err := tx.Get(f.owner)
	if err != nil || !kv.Exists() {
		return expectedRow{}, false, err
	}
	_, ch, err := tables.Look(kv)
	if err != nil {
		return expectedRow{}, false, err
	}
	all := expectedRows(ch.Value)
	if n, ok := ch.Value.(model.Network); ok {
		t, err := tables.Tenants.Find(tx, n.Key.Tenant)
		if err != nil {
			return expectedRow{}, false, err
		}
		if t.Value.Shares() {
			for _, p := range subnetsOf(n) {
				all = append(all, wantPlanned(n, p))
			}
		}
	}
	for _, w := range all {
		if w.at() == f.at {
			return w, true, nil
		}
	}
	return expectedRow{}, false, nil
}
