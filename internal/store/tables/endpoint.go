package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// EndpointsOf is the prefix of a network's endpoints. Endpoints is Unlisted: AddressesOf
// shows whether a network has any.
func EndpointsOf(n model.NetworkKey) string {
	return AllEndpointsOf(n.Tenant) + store.Segment(string(n.Name)) + "/"
}

// AllEndpointsOf is the prefix of a tenant's endpoints.
func AllEndpointsOf(t model.TenantName) string { return TenantPrefix(t) + "endpoints/" }

// Endpoints holds endpoints by network.
var Endpoints = declare(TableSpec[model.EndpointKey, model.Endpoint]{
	Kinds: []string{"endpoint"},
	Noun:  "endpoint", Version: 1, Unlisted: true,
	Path: "state/tenant/*/endpoints/*/*",
	Parse: func(n []string) (model.EndpointKey, bool) {
		return model.EndpointKey{Network: networkKey(n), ID: model.EndpointID(n[2])}, true
	},
	KeyOf: func(e model.Endpoint) model.EndpointKey { return e.Key },
	Show:  model.EndpointKey.String,
	Scope: func(k model.EndpointKey) string { return EndpointsOf(k.Network) },
	Name:  func(k model.EndpointKey) string { return store.Segment(string(k.ID)) },
})

// networkKey reads the names of a tenant and a network.
func networkKey(n []string) model.NetworkKey {
	return model.NetworkKey{Tenant: model.TenantName(n[0]), Name: model.NetworkName(n[1])}
}
