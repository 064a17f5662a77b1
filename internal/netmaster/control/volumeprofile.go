package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	volumeProfileRows = newRowsPart[model.VolumeProfileKey, model.VolumeProfile](func(k model.VolumeProfileKey) model.TenantName { return k.Tenant }, func(a, b model.VolumeProfileKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })

	_ = register(volumeProfileRows, nil, kind{
		name:  "volumeProfile",
		empty: none(tables.VolumeProfiles, tables.VolumeProfilesOf, "volume profiles", func(x model.VolumeProfile) string { return x.Key.Name }),
	})
)

// ChangeVolumeProfile creates a volume profile or replaces it.
func ChangeVolumeProfile(valid model.Valid[model.VolumeProfile]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.VolumeProfiles, valid)
}

// DeleteVolumeProfile deletes a volume profile.
func (ts *Tenants) DeleteVolumeProfile(ctx context.Context, k model.VolumeProfileKey) error {
	return deleteRow(ctx, ts.commits, tables.VolumeProfiles, k, nil)
}

// VolumeProfiles returns volume profiles.
func (v *View) VolumeProfiles(t model.TenantName) []model.VolumeProfile {
	return volumeProfileRows.list(v, t)
}

// VolumeProfile finds a volume profile.
func (v *View) VolumeProfile(k model.VolumeProfileKey) (model.VolumeProfile, bool) {
	return volumeProfileRows.find(v, k)
}
