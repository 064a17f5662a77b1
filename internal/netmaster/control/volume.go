package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	volumeRows = newRowsPart[model.VolumeKey, model.Volume](func(k model.VolumeKey) model.TenantName { return k.Tenant }, func(a, b model.VolumeKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })

	_ = register(volumeRows, nil, kind{
		name:  "volume",
		empty: none(tables.Volumes, tables.VolumesOf, "volumes", func(x model.Volume) string { return x.Key.Name }),
	})
)

// ChangeVolume creates a volume or replaces it.
func ChangeVolume(valid model.Valid[model.Volume]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.Volumes, valid)
}

// DeleteVolume deletes a volume.
func (ts *Tenants) DeleteVolume(ctx context.Context, k model.VolumeKey) error {
	return deleteRow(ctx, ts.commits, tables.Volumes, k, nil)
}

// Volumes returns volumes.
func (v *View) Volumes(t model.TenantName) []model.Volume { return volumeRows.list(v, t) }

// Volume finds a volume.
func (v *View) Volume(k model.VolumeKey) (model.Volume, bool) { return volumeRows.find(v, k) }
