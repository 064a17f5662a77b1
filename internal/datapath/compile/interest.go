package compile

import (
	"iter"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Interest decides which networks have to be known on this host, and which are: those
// whose endpoints are all entered.
//
// Takes: the networks that are followed; routing.
// Gives: which networks belong to the desired state; marks networks.
type Interest struct {
	all      bool // all networks are followed
	networks set[model.NetworkKey]
	tenants  set[model.TenantName] // with all of their networks

	inv           *inventory
	routing       *routing
	dirtyNetworks *marks[*network]
}

// SetByNetwork says, before anything else, that only the endpoints of some networks are
// entered: the networks of Follow and SetAllFollowed. The desired state has no others, since
// their endpoints are not known.
func (it *Interest) SetByNetwork() {
	it.all, it.networks, it.tenants = false, set[model.NetworkKey]{}, set[model.TenantName]{}
}

// SetFollowed says whether all endpoints of a network have been told, and are from now on.
func (it *Interest) SetFollowed(k model.NetworkKey, is bool) {
	if is {
		it.networks.add(k)
	} else {
		delete(it.networks, k)
	}
	if n := it.inv.networks[k]; n != nil {
		it.dirtyNetworks.add(n)
		markSegments(it.dirtyNetworks, n)
	}
}

// SetAllFollowed is Follow of all networks that a tenant has, and will have.
func (it *Interest) SetAllFollowed(name model.TenantName, is bool) {
	if is {
		it.tenants.add(name)
	} else {
		delete(it.tenants, name)
	}
	it.routing.touchRouter(it.inv.tenants[name])
}

func (it *Interest) follows(n *network) bool {
	if it.all {
		return true
	}
	_, one := it.networks[n.key]
	_, all := it.tenants[n.key.Tenant]
	return one || all
}

// IsNeeded reports whether a network's endpoints have to be known here, though none is
// here, when isHere are the tenants that have some or are about to: it is native, or has
// services that every host leads to, or is joined to a network that is here.
func (it *Interest) IsNeeded(k model.NetworkKey, isHere func(model.TenantName) bool) bool {
	n := it.inv.networks[k]
	return n != nil && it.isNeeded(n, isHere)
}

// AreAllNeeded reports whether Concerns is so of all networks that a tenant has, and will
// have: they are joined, and one of them is here.
func (it *Interest) AreAllNeeded(name model.TenantName, isHere func(model.TenantName) bool) bool {
	t := it.inv.tenants[name]
	return t != nil && it.routing.joins(t) != 0 && (isHere(name) || t.exposing > 0)
}

// ServingTenants returns the tenants with services that every host leads to.
func (it *Interest) ServingTenants() iter.Seq[model.TenantName] {
	return func(yield func(model.TenantName) bool) {
		for name, t := range it.inv.tenants {
			if t.serving > 0 && !yield(name) {
				return
			}
		}
	}
}

func (it *Interest) isNeeded(n *network, isHere func(model.TenantName) bool) bool {
	return n.rec != nil && (n.rec.Routed || n.exposes() || it.routing.joins(n.tenant) != 0 && (isHere(n.key.Tenant) || n.tenant.exposing > 0 || it.routing.sharedHere(n, isHere)))
}

// present reports whether a network or a segment belongs into the desired state: it has endpoints
// on this host, or concerns what is here; and its endpoints are known.
func (it *Interest) present(n *network) bool {
	return it.follows(n.root()) && (n.placed > 0 || n.base == nil && it.isNeeded(n, it.routing.isHere))
}
