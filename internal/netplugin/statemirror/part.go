package statemirror

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Part is what one mirror follows of the store. The zero Part is the global part. One of
// a tenant alone is the tenant's rest: networks, groups, policies, identities, services,
// whatever is no endpoint. With a network it is the endpoints of that network; with All
// those of all networks of the tenant.
type Part struct {
	Tenant  model.TenantName
	Network model.NetworkName
	All     bool
}

// RestOf is the Part of what a tenant has beside endpoints.
func RestOf(t model.TenantName) Part { return Part{Tenant: t} }

func allOf(t model.TenantName) Part { return Part{Tenant: t, All: true} }

// EndpointsOf is the Part of a network's endpoints.
func EndpointsOf(k model.NetworkKey) Part { return Part{Tenant: k.Tenant, Network: k.Name} }

func (p Part) network() model.NetworkKey {
	return model.NetworkKey{Tenant: p.Tenant, Name: p.Network}
}

func (p Part) isRest() bool { return p.Tenant != "" && p.Network == "" && !p.All }

// String names the Part for people.
func (p Part) String() string {
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

func (p Part) prefixes() []string {
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

// Revs is how far a picture knows each Part.
type Revs map[Part]store.Revision

// Endpoints is how far the endpoints of a network are known; false = not at all.
func (r Revs) Endpoints(k model.NetworkKey) (store.Revision, bool) {
	if rev, ok := r[allOf(k.Tenant)]; ok {
		return rev, true
	}
	rev, ok := r[EndpointsOf(k)]
	return rev, ok
}
