package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// VolumesOf is the scope of a tenant's volumes.
func VolumesOf(t model.TenantName) string { return TenantPrefix(t) + "volumes/" }

// Volumes holds volumes by tenant.
var Volumes = declare(TableSpec[model.VolumeKey, model.Volume]{
	Kinds: []string{"volume"},
	Noun:  "volume", Version: 1,
	Path: "state/tenant/*/volumes/*",
	Parse: func(n []string) (model.VolumeKey, bool) {
		return model.VolumeKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.Volume) model.VolumeKey { return v.Key },
	Show:  model.VolumeKey.String,
	Scope: func(k model.VolumeKey) string { return VolumesOf(k.Tenant) },
	Name:  func(k model.VolumeKey) string { return store.Segment(k.Name) },
})
