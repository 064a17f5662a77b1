package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// LoadBalancersOf is the scope of a tenant's load-balanced services.
func LoadBalancersOf(t model.TenantName) string { return TenantPrefix(t) + "services/" }

// LoadBalancers holds load-balanced services by tenant.
var LoadBalancers = declare(TableSpec[model.ServiceKey, model.Service]{
	Kinds: []string{"serviceLB"},
	Noun:  "load-balanced service", Version: 1,
	Path: "state/tenant/*/services/*",
	Parse: func(n []string) (model.ServiceKey, bool) {
		return model.ServiceKey{Tenant: model.TenantName(n[0]), Name: n[1]}, true
	},
	KeyOf: func(v model.Service) model.ServiceKey { return v.Key },
	Show:  model.ServiceKey.String,
	Scope: func(k model.ServiceKey) string { return LoadBalancersOf(k.Tenant) },
	Name:  func(k model.ServiceKey) string { return store.Segment(k.Name) },
})
