package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// AssertionsOf is the scope of a tenant's assertions.
func AssertionsOf(t model.TenantName) string { return TenantPrefix(t) + "assertions/" }

// ChecksKey is the key of the only row of Checks.
type ChecksKey struct{}

// Checked says that there are assertions, or were.
type Checked struct {
	Asserted bool `json:"asserted"`
}

// Checks is read by each transaction that may break assertions, and written by each that is checked
// against some: of two at once, the second is checked again.
var Checks = declare(TableSpec[ChecksKey, Checked]{
	Noun: "checks", Version: 1, Unlisted: true,
	Path:  "state/alloc/checks",
	Parse: func([]string) (ChecksKey, bool) { return ChecksKey{}, true },
	KeyOf: func(Checked) ChecksKey { return ChecksKey{} },
	Show:  func(ChecksKey) string { return "checks" },
	Scope: func(ChecksKey) string { return AllocPrefix },
	Name:  func(ChecksKey) string { return "checks" },
})

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
