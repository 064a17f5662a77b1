package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.AppProfileKey](kind{
	name:      "appProfile",
	empty:     none(tables.AppProfiles, tables.AppProfilesOf, "app profiles", func(x model.AppProfile) string { return x.Key.Name }),
	reference: "appprofile", usedBy: "it belongs to app profiles",
})

// ChangeAppProfile creates an app profile or replaces its groups, which must
// exist. More changes than appBatch take several transactions, each of which
// leaves the profile with exactly the groups that are tied; when one of them
// fails, for a group that somebody deleted meanwhile, changing the profile again
// goes on from there.
func (ts *Tenants) ChangeAppProfile(valid model.Valid[model.AppProfile]) Change {
	p := valid.Value()
	ch := changeOf(rankMember, tables.AppProfiles, p.Key, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		for {
			if done, err := assignGroups(tx, p); done || err != nil {
				return err
			}
		}
	})
	ch.alone = func(ctx context.Context, u *usecase) (any, error) { return p, tieAll(ctx, u, p) }
	return ch
}

// appBatch is how many groups of an app profile one transaction ties or frees:
// each takes two operations and a scope.
const appBatch = 12

// tieAll is ChangeAppProfile in as many transactions as it takes.
func tieAll(ctx context.Context, u *usecase, p model.AppProfile) (err error) {
	what := fmt.Sprintf("put app profile %q", p.Key)
	for done := false; !done && err == nil; {
		_, err = u.update(ctx, what, func(tx store.Tx) (err error) {
			done, err = assignGroups(tx, p)
			return err
		})
	}
	return err
}

// assignGroups takes one step towards the wanted profile and tells whether it is
// there.
func assignGroups(tx store.Tx, want model.AppProfile) (done bool, err error) {
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
			if err := addReference(tx, tables.TargetGroup(k), "appprofile", want.Key.String()); err != nil {
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
			removeReference(tx, tables.TargetGroup(model.GroupKey{Tenant: want.Key.Tenant, Name: g}), "appprofile", want.Key.String())
		}
	}
	return slices.Equal(next.Groups, want.Groups), tables.AppProfiles.Put(tx, next)
}

// DeleteAppProfile deletes an app profile and frees its groups, which stay.
func (ts *Tenants) DeleteAppProfile(k model.AppProfileKey) Deletion {
	what := fmt.Sprintf("delete app profile %q", k)
	return Deletion{what: what, do: func(ctx context.Context, u *usecase) (err error) {
		for done := false; !done && err == nil; {
			_, err = u.update(ctx, what, func(tx store.Tx) error {
				p, err := tables.AppProfiles.Get(tx, k)
				if err != nil {
					return err
				}
				if done = len(p.Groups) <= appBatch; !done {
					_, err := assignGroups(tx, model.AppProfile{Key: k})
					return err
				}
				for _, g := range p.Groups {
					removeReference(tx, tables.TargetGroup(model.GroupKey{Tenant: k.Tenant, Name: g}), "appprofile", k.String())
				}
				tables.AppProfiles.Delete(tx, k)
				return nil
			})
		}
		return err
	}}
}
