package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// NetworksOf is the scope of a tenant's networks.
func NetworksOf(t model.TenantName) string { return TenantPrefix(t) + "networks/" }

// Networks holds networks by tenant.
var Networks = declare(TableSpec[model.NetworkKey, model.Network]{
	Kinds: []string{"network"},
	Noun:  "network", Version: 1,
	Path: "state/tenant/*/networks/*",
	Parse: func(n []string) (model.NetworkKey, bool) {
		return model.NetworkKey{Tenant: model.TenantName(n[0]), Name: model.NetworkName(n[1])}, true
	},
	KeyOf: func(v model.Network) model.NetworkKey { return v.Key },
	Show:  model.NetworkKey.String,
	Scope: func(k model.NetworkKey) string { return NetworksOf(k.Tenant) },
	Name:  func(k model.NetworkKey) string { return store.Segment(string(k.Name)) },
})

// TargetNetwork is a network as the target of references.
func TargetNetwork(k model.NetworkKey) Target { return Target{"network", k.Tenant, string(k.Name)} }
