package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.VolumeKey](kind{
	name:  "volume",
	empty: none(tables.Volumes, tables.VolumesOf, "volumes", func(x model.Volume) string { return x.Key.Name }),
})

// ChangeVolume creates a volume or replaces it.
func ChangeVolume(valid model.Valid[model.Volume]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.Volumes, valid)
}

// DeleteVolume deletes a volume.
func (ts *Tenants) DeleteVolume(ctx context.Context, k model.VolumeKey) error {
	return deleteRow(ctx, ts.commits, tables.Volumes, k, nil)
}
