package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.NetProfileKey](kind{
	name:  "netprofile",
	empty: none(tables.NetProfiles, tables.NetProfilesOf, "net profiles", func(x model.NetProfile) string { return x.Key.Name }),
})

var netProfileRows = rowsOf[model.NetProfileKey, model.NetProfile](func(k model.NetProfileKey) (model.TenantName, string) { return k.Tenant, k.Name })

// NetProfiles returns the net profiles of a tenant, "" = of all.
func NetProfiles(v *View, t model.TenantName) []model.NetProfile { return netProfileRows(v).list(t) }

// NetProfile finds a net profile.
func NetProfile(v *View, k model.NetProfileKey) (model.NetProfile, bool) {
	return netProfileRows(v).find(k)
}

// ChangeNetProfile creates a net profile or replaces it, whether or not groups
// name it.
func ChangeNetProfile(valid model.Valid[model.NetProfile]) Change {
	p := valid.Value()
	return changeOf(rankSettings, tables.NetProfiles, p.Key, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		old, err := tables.NetProfiles.Find(tx, p.Key)
		if err != nil {
			return err
		}
		next := p
		next.Object = old.Value.Object
		return setRow(tx, p.Key.Tenant, tables.NetProfiles, p.Key, next)
	}).of(ownNetProfile(p.Key))
}

// DeleteNetProfile deletes a net profile that no group names: otherwise
// model.ErrInUse.
func DeleteNetProfile(k model.NetProfileKey) Deletion {
	t := tables.TargetNetProfile(k)
	return deleteRow(tables.NetProfiles, k, &t, func(tx store.Tx, a Actor) error {
		return a.mayDelete(tx, ownNetProfile(k))
	})
}
