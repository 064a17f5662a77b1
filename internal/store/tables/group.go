package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// GroupsOf is the scope of a tenant's groups.
func GroupsOf(t model.TenantName) string { return TenantPrefix(t) + "groups/" }

// Groups holds endpoint groups by tenant.
var Groups = declare(TableSpec[model.GroupKey, model.Group]{
	Kinds: []string{"endpointGroup"},
	Noun:  "endpoint group", Version: 1,
	Path: "state/tenant/*/groups/*",
	Parse: func(n []string) (model.GroupKey, bool) {
		return model.GroupKey{Tenant: model.TenantName(n[0]), Name: model.GroupName(n[1])}, true
	},
	KeyOf: func(v model.Group) model.GroupKey { return v.Key },
	Show:  model.GroupKey.String,
	Scope: func(k model.GroupKey) string { return GroupsOf(k.Tenant) },
	Name:  func(k model.GroupKey) string { return store.Segment(string(k.Name)) },
})

// TargetGroup is a group as the target of references.
func TargetGroup(k model.GroupKey) Target { return Target{"group", k.Tenant, string(k.Name)} }
