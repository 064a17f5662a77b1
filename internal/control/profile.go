package control

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// setRow creates or replaces an object of a tenant that has neither immutable
// fields nor references of its own. An equal one is left as it is.
func setRow[K comparable, V any](tx store.Tx, t model.TenantName, table *tables.Table[K, V], k K, v V) error {
	if err := tx.Prefetch(tables.Tenants.Key(t), table.Key(k)); err != nil {
		return err
	}
	if _, err := tables.Tenants.Get(tx, t); err != nil {
		return err
	}
	old, err := table.Find(tx, k)
	if err != nil || old.Exists() && reflect.DeepEqual(old.Value, v) {
		return err
	}
	return table.Put(tx, v)
}

// deleteRow deletes an object, if nothing refers to it; target may be nil.
func deleteRow[K comparable, V any](ctx context.Context, c *Controller, table *tables.Table[K, V], k K, target *tables.Target) error {
	_, err := c.update(ctx, fmt.Sprintf("delete %s %q", table.Noun(), table.Show(k)), func(tx store.Tx) error {
		if _, err := table.Get(tx, k); err != nil {
			return err
		}
		if target != nil {
			if err := unreferenced(tx, *target); err != nil {
				return err
			}
			tables.References.DeleteScope(tx, target.Scope())
		}
		table.Delete(tx, k)
		return nil
	})
	return err
}

// DeleteNetProfile deletes a net profile that no group names: otherwise
// model.ErrInUse.
func (c *Controller) DeleteNetProfile(ctx context.Context, k model.NetProfileKey) error {
	t := tables.TargetNetProfile(k)
	return deleteRow(ctx, c, tables.NetProfiles, k, &t)
}

// DeleteVolume deletes a volume.
func (c *Controller) DeleteVolume(ctx context.Context, k model.VolumeKey) error {
	return deleteRow(ctx, c, tables.Volumes, k, nil)
}

// DeleteVolumeProfile deletes a volume profile.
func (c *Controller) DeleteVolumeProfile(ctx context.Context, k model.VolumeProfileKey) error {
	return deleteRow(ctx, c, tables.VolumeProfiles, k, nil)
}

// appBatch is how many groups of an app profile one transaction ties or frees:
// each takes two operations and a scope.
const appBatch = 12

// tieAll is ChangeAppProfile in as many transactions as it takes.
func (c *Controller) tieAll(ctx context.Context, p model.AppProfile) (rev store.Revision, err error) {
	what := fmt.Sprintf("put app profile %q", p.Key)
	for done := false; !done && err == nil; {
		rev, err = c.update(ctx, what, func(tx store.Tx) (err error) {
			done, err = tieGroups(tx, p)
			return err
		})
	}
	return rev, err
}

// tieGroups takes one step towards the wanted profile and tells whether it is
// there.
func tieGroups(tx store.Tx, want model.AppProfile) (done bool, err error) {
	keys := []string{tables.Tenants.Key(want.Key.Tenant), tables.AppProfiles.Key(want.Key)}
	for _, g := range want.Groups {
		keys = append(keys, tables.Groups.Key(model.GroupKey{Tenant: want.Key.Tenant, Name: g}))
	}
	if err := tx.Prefetch(keys...); err != nil {
		return false, err
	}
	if _, err := tables.Tenants.Get(tx, want.Key.Tenant); err != nil {
		return false, err
	}
	old, err := tables.AppProfiles.Find(tx, want.Key)
	if err != nil {
		return false, err
	}
	if old.Exists() && slices.Equal(old.Value.Groups, want.Groups) {
		return true, nil
	}
	for _, g := range want.Groups { // all of them first: what cannot be done is not begun
		k := model.GroupKey{Tenant: want.Key.Tenant, Name: g}
		row, err := tables.Groups.Peek(tx, k)
		if err == nil && !row.Exists() {
			err = model.Errorf(model.ErrNotFound, "endpointGroups %q: endpoint group %q does not exist", g, k)
		}
		if err != nil {
			return false, err
		}
	}
	left := appBatch
	next := model.AppProfile{Key: want.Key}
	for _, g := range want.Groups {
		switch {
		case slices.Contains(old.Value.Groups, g):
		case left == 0:
			continue
		default:
			left--
			k := model.GroupKey{Tenant: want.Key.Tenant, Name: g}
			if _, err := tables.Groups.Get(tx, k); err != nil {
				return false, err
			}
			if err := refer(tx, tables.TargetGroup(k), "appprofile", want.Key.String()); err != nil {
				return false, err
			}
		}
		next.Groups = append(next.Groups, g)
	}
	for _, g := range old.Value.Groups {
		switch {
		case slices.Contains(want.Groups, g):
		case left == 0:
			next.Groups = append(next.Groups, g)
		default:
			left--
			unrefer(tx, tables.TargetGroup(model.GroupKey{Tenant: want.Key.Tenant, Name: g}), "appprofile", want.Key.String())
		}
	}
	return slices.Equal(next.Groups, want.Groups), tables.AppProfiles.Put(tx, next)
}

// DeleteAppProfile deletes an app profile and frees its groups, which stay.
func (c *Controller) DeleteAppProfile(ctx context.Context, k model.AppProfileKey) error {
	what := fmt.Sprintf("delete app profile %q", k)
	for done := false; !done; {
		_, err := c.update(ctx, what, func(tx store.Tx) error {
			p, err := tables.AppProfiles.Get(tx, k)
			if err != nil {
				return err
			}
			if done = len(p.Groups) <= appBatch; !done {
				_, err := tieGroups(tx, model.AppProfile{Key: k})
				return err
			}
			for _, g := range p.Groups {
				unrefer(tx, tables.TargetGroup(model.GroupKey{Tenant: k.Tenant, Name: g}), "appprofile", k.String())
			}
			tables.AppProfiles.Delete(tx, k)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
