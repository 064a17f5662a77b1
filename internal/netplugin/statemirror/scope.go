package statemirror

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Scope is what one mirror follows of the store. The zero Scope is the global part. One of
// a tenant alone is the tenant's rest: networks, groups, policies, identities, services,
// whatever is no endpoint. With a network it is the endpoints of that network; with All
// those of all networks of the tenant.
type Scope struct {
	Tenant  model.TenantName
	Network model.NetworkName
	All     bool
}

// TenantScope is the Scope of what a tenant has beside endpoints.
func TenantScope(t model.TenantName) Scope { return Scope{Tenant: t} }

func allEndpointsScope(t model.TenantName) Scope { return Scope{Tenant: t, All: true} }

// EndpointsScope is the Scope of a network's endpoints.
func EndpointsScope(k model.NetworkKey) Scope { return Scope{Tenant: k.Tenant, Network: k.Name} }

func (p Scope) network() model.NetworkKey {
	return model.NetworkKey{Tenant: p.Tenant, Name: p.Network}
}

func (p Scope) isTenant() bool { return p.Tenant != "" && p.Network == "" && !p.All }

// String names the Scope for people.
func (p Scope) String() string {
	switch {
	case p.Tenant == "":
		return "the cluster's own rows"
	case p.All:
		return "all endpoints of tenant " + string(p.Tenant)
	case p.Network != "":
		return "the endpoints of network " + p.network().String()
	}
	return "tenant " + string(p.Tenant)
}

func (p Scope) prefixes() []string {
	switch {
	case p.Tenant == "":
		return []string{tables.GlobalPrefix}
	case p.All:
		return []string{tables.AllEndpointsOf(p.Tenant)}
	case p.Network != "":
		return []string{tables.EndpointsOf(p.network())}
	}
	return tables.TenantRest(p.Tenant)
}

// Revs is how far a desired state knows each Scope.
type Revs map[Scope]store.Revision

// Endpoints is how far the endpoints of a network are known; false = not at all.
func (r Revs) Endpoints(k model.NetworkKey) (store.Revision, bool) {
	if rev, ok := r[allEndpointsScope(k.Tenant)]; ok {
		return rev, true
	}
	rev, ok := r[EndpointsScope(k)]
	return rev, ok
}
