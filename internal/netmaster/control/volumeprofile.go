package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.VolumeProfileKey](kind{
	name:  "volumeProfile",
	empty: none(tables.VolumeProfiles, tables.VolumeProfilesOf, "volume profiles", func(x model.VolumeProfile) string { return x.Key.Name }),
})

// ChangeVolumeProfile creates a volume profile or replaces it.
func ChangeVolumeProfile(valid model.Valid[model.VolumeProfile]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.VolumeProfiles, valid)
}

// DeleteVolumeProfile deletes a volume profile.
func (ts *Tenants) DeleteVolumeProfile(ctx context.Context, k model.VolumeProfileKey) error {
	return deleteRow(ctx, ts.commits, tables.VolumeProfiles, k, nil)
}
