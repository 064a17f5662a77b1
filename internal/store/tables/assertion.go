package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// AssertionsOf is the scope of a tenant's assertions.
func AssertionsOf(t model.TenantName) string { return TenantPrefix(t) + "assertions/" }

// CheckedScope is touched and observed by each transaction that is checked against assertions:
// of two at once, the second is checked again.
const CheckedScope = AllocPrefix + "checked/"

// Assertions holds assertions by tenant.
var Assertions = declare(TableSpec[model.AssertionKey, model.Assertion]{
	Kinds: []string{"assertion"},
	Noun:  "assertion", Version: 1,
	Path: "state/tenant/*/assertions/*",
	Parse: func(n []string) (model.AssertionKey, bool) {
		return model.AssertionKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.Assertion) model.AssertionKey { return v.Key },
	Show:  model.AssertionKey.String,
	Scope: func(k model.AssertionKey) string { return AssertionsOf(k.Tenant) },
	Name:  func(k model.AssertionKey) string { return store.Segment(k.Name) },
})
