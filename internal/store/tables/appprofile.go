package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// AppProfilesOf is the scope of a tenant's app profiles.
func AppProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "appprofiles/" }

// AppProfiles holds app profiles by tenant.
var AppProfiles = declare(TableSpec[model.AppProfileKey, model.AppProfile]{
	Kinds: []string{"appProfile"},
	Noun:  "app profile", Version: 1,
	Path: "state/tenant/*/appprofiles/*",
	Parse: func(n []string) (model.AppProfileKey, bool) {
		return model.AppProfileKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.AppProfile) model.AppProfileKey { return v.Key },
	Show:  model.AppProfileKey.String,
	Scope: func(k model.AppProfileKey) string { return AppProfilesOf(k.Tenant) },
	Name:  func(k model.AppProfileKey) string { return store.Segment(k.Name) },
})
