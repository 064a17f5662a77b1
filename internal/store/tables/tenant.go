package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TenantsScope is the scope of all tenants.
const TenantsScope = GlobalPrefix + "tenants/"

// Tenants holds all tenants.
var Tenants = declare(TableSpec[model.TenantName, model.Tenant]{
	Kinds: []string{"tenant"},
	Noun:  "tenant", Version: 1,
	Path:  "state/global/tenants/*",
	Parse: func(n []string) (model.TenantName, bool) { return model.TenantName(n[0]), true },
	KeyOf: func(t model.Tenant) model.TenantName { return t.Name },
	Scope: func(model.TenantName) string { return TenantsScope },
	Name:  func(k model.TenantName) string { return store.Segment(string(k)) },
})
