package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// NetProfilesOf is the scope of a tenant's net profiles.
func NetProfilesOf(t model.TenantName) string { return TenantPrefix(t) + "netprofiles/" }

// NetProfiles holds net profiles by tenant.
var NetProfiles = declare(TableSpec[model.NetProfileKey, model.NetProfile]{
	Kinds: []string{"netprofile"},
	Noun:  "net profile", Version: 1,
	Path: "state/tenant/*/netprofiles/*",
	Parse: func(n []string) (model.NetProfileKey, bool) {
		return model.NetProfileKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.NetProfile) model.NetProfileKey { return v.Key },
	Show:  model.NetProfileKey.String,
	Scope: func(k model.NetProfileKey) string { return NetProfilesOf(k.Tenant) },
	Name:  func(k model.NetProfileKey) string { return store.Segment(k.Name) },
})

// TargetNetProfile is a net profile as the target of references.
func TargetNetProfile(k model.NetProfileKey) Target { return Target{"netprofile", k.Tenant, k.Name} }
