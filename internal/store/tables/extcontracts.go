package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ExtContractsOf is the scope of a tenant's groups of external contracts.
func ExtContractsOf(t model.TenantName) string { return TenantPrefix(t) + "extcontracts/" }

// ExtContracts holds groups of external contracts by tenant.
var ExtContracts = declare(TableSpec[model.ExtContractsKey, model.ExtContracts]{
	Kinds: []string{"extContractsGroup"},
	Noun:  "group of external contracts", Version: 1,
	Path: "state/tenant/*/extcontracts/*",
	Parse: func(n []string) (model.ExtContractsKey, bool) {
		return model.ExtContractsKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.ExtContracts) model.ExtContractsKey { return v.Key },
	Show:  model.ExtContractsKey.String,
	Scope: func(k model.ExtContractsKey) string { return ExtContractsOf(k.Tenant) },
	Name:  func(k model.ExtContractsKey) string { return store.Segment(k.Name) },
})

// TargetExtContracts is a group of external contracts as the target of references.
func TargetExtContracts(k model.ExtContractsKey) Target {
	return Target{"extcontracts", k.Tenant, k.Name}
}
