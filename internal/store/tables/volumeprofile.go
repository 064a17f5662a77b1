package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// VolumeProfilesOf is the scope of a tenant's volume profiles.
func VolumeProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "volumeprofiles/" }

// VolumeProfiles holds volume profiles by tenant.
var VolumeProfiles = declare(TableSpec[model.VolumeProfileKey, model.VolumeProfile]{
	Kinds: []string{"volumeProfile"},
	Noun:  "volume profile", Version: 1,
	Path: "state/tenant/*/volumeprofiles/*",
	Parse: func(n []string) (model.VolumeProfileKey, bool) {
		return model.VolumeProfileKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.VolumeProfile) model.VolumeProfileKey { return v.Key },
	Show:  model.VolumeProfileKey.String,
	Scope: func(k model.VolumeProfileKey) string { return VolumeProfilesOf(k.Tenant) },
	Name:  func(k model.VolumeProfileKey) string { return store.Segment(k.Name) },
})
