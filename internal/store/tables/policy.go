package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// PoliciesOf is the scope of a tenant's policies.
func PoliciesOf(t model.TenantName) string { return TenantPrefix(t) + "policies/" }

// Policies holds Contiv policies by tenant.
var Policies = NewTable(TableSpec[model.PolicyKey, model.ContivPolicy]{
	Noun: "policy", Version: 1,
	Path: "state/tenant/*/policies/*",
	Parse: func(n []string) (model.PolicyKey, bool) {
		return model.PolicyKey{Tenant: model.TenantName(n[0]), Name: model.PolicyName(n[1])}, true
	},
	KeyOf: func(v model.ContivPolicy) model.PolicyKey { return v.Key },
	Show:  model.PolicyKey.String,
	Scope: func(k model.PolicyKey) string { return PoliciesOf(k.Tenant) },
	Name:  func(k model.PolicyKey) string { return store.Segment(string(k.Name)) },
})

// TargetPolicy is a policy as the target of references.
func TargetPolicy(k model.PolicyKey) Target { return Target{"policy", k.Tenant, string(k.Name)} }
