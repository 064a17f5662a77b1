package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// PoliciesOf is the scope of a tenant's policies.
func PoliciesOf(t model.TenantName) string { return TenantPrefix(t) + "policies/" }

// LabelSelectors is the scope of all selectors by labels, of policies and of rules:
// who writes one touches it. It has no rows.
const LabelSelectors = AllocPrefix + "label-selectors/"

// Policies holds policies by tenant: Contiv's and network policies share one name
// space. Records of version 1 are Contiv's.
var Policies = declare(TableSpec[model.PolicyKey, model.Policy]{
	Kinds: []string{"policy", "networkPolicy"},
	Noun:  "policy", Version: 2,
	Path: "state/tenant/*/policies/*",
	Parse: func(n []string) (model.PolicyKey, bool) {
		return model.PolicyKey{Tenant: model.TenantName(n[0]), Name: model.PolicyName(n[1])}, true
	},
	KeyOf: func(v model.Policy) model.PolicyKey { return v.Key },
	Show:  model.PolicyKey.String,
	Scope: func(k model.PolicyKey) string { return PoliciesOf(k.Tenant) },
	Name:  func(k model.PolicyKey) string { return store.Segment(string(k.Name)) },
	Old: func(b []byte) (model.Policy, error) {
		p, _, err := store.DecodeRecord[model.ContivPolicy](b)
		return p.General(), err
	},
})

// TargetPolicy is a policy as the target of references.
func TargetPolicy(k model.PolicyKey) Target { return Target{"policy", k.Tenant, string(k.Name)} }
