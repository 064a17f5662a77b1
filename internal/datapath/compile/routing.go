package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// routing decides which networks reach each other: the networks of a tenant by its
// router, and networks that tenants share.
//
// Takes: tenant rows; settings; how many endpoints are here, and how many networks every
// host has, of each tenant.
// Gives: routers, shared networks and the tiers that keep tenants apart to other nodes;
// problems of tenants; marks networks, tenants, subjects.
type routing struct {
	routers   map[model.TenantName]model.RouterID
	routerIDs map[model.RouterID]set[model.TenantName]   // the reverse; nearly always one
	shared    map[model.TenantName][]model.NetworkKey    // networks of others that a tenant reaches
	clients   map[model.TenantName]set[model.TenantName] // the reverse: who reaches a tenant's networks

	inv           *inventory
	settings      *settings
	problems      *problems
	dirtyNetworks *marks[*network]
	dirtyTenants  *marks[*tenant]
	dirtySubjects *marks[*subject]
}

func (rt *routing) put(t model.Tenant) {
	rt.putRouter(t.Name, t.Router)
	rt.putShared(t.Name, t.Shared)
}

func (rt *routing) remove(name model.TenantName) {
	rt.putRouter(name, 0)
	rt.putShared(name, nil)
}

func (rt *routing) putRouter(name model.TenantName, id model.RouterID) {
	old := rt.routers[name]
	if old == id {
		return
	}
	if delete(rt.routers, name); old != 0 {
		removeFrom(rt.routerIDs, old, name)
	}
	if id != 0 {
		rt.routers[name] = id
		addTo(rt.routerIDs, id, name)
	}
	rt.touchRouter(rt.inv.tenants[name])
	for _, id := range []model.RouterID{old, id} {
		for rival := range rt.routerIDs[id] {
			rt.touchRouter(rt.inv.tenants[rival])
		}
	}
}

// touchAll marks what depends on whether networks are joined.
func (rt *routing) touchAll() {
	for _, t := range rt.inv.tenants {
		rt.touchRouter(t)
		if rt.shares(t.name) {
			rt.touchIsolation(t)
		}
	}
}

// compile finds the problems of the marked tenants.
func (rt *routing) compile() {
	for t := range rt.dirtyTenants.of {
		rt.problems.set("router of tenant "+string(t.name), rt.routerProblem(t))
		rt.problems.set("shared networks of tenant "+string(t.name), rt.sharedProblem(t))
	}
}

// countExposing follows how many networks with exposed services a tenant has, as
// countLocal does endpoints: every host leads to them.
func (rt *routing) countExposing(n *network, by int) {
	rt.dirtyNetworks.add(n)
	n.tenant.serving += by
	rt.countEverywhere(n.tenant, by)
}

// countEverywhere follows how many networks of a tenant every host has.
func (rt *routing) countEverywhere(t *tenant, by int) {
	was := t.exposing
	if t.exposing += by; (was == 0) != (t.exposing == 0) {
		rt.touchRouter(t)
	}
}

// countRouted follows how many native networks a tenant has: every host has them.
func (rt *routing) countRouted(n *network, old, now *model.Network) {
	was, is := old != nil && old.Routed, now != nil && now.Routed
	switch {
	case was && !is:
		rt.countEverywhere(n.tenant, -1)
	case is && !was:
		rt.countEverywhere(n.tenant, 1)
	}
}

// touchRouter has it looked at which of a tenant's networks are joined, and where.
func (rt *routing) touchRouter(t *tenant) {
	if t == nil {
		return
	}
	rt.dirtyTenants.add(t)
	for n := range t.networks {
		rt.dirtyNetworks.add(n)
		markSegments(rt.dirtyNetworks, n)
	}
}

// countLocal follows how many endpoints a tenant has on this host. The first one
// brings all networks that are joined to its own into the desired state.
func (rt *routing) countLocal(t *tenant, by int) {
	was := t.local
	if t.local += by; (was == 0) != (t.local == 0) {
		rt.touchRouter(t)
		for p := range rt.partners(t.name) {
			rt.touchRouter(rt.inv.tenants[p])
		}
	}
}

// joins returns the router that joins a tenant's networks, 0 = none does. Of
// tenants with one number, of which control gives each once, the first by name has it;
// all that share networks have one.
func (rt *routing) joins(t *tenant) model.RouterID {
	id := rt.routers[t.name]
	switch {
	case !rt.settings.routes():
		return 0
	case rt.shares(t.name):
		return model.RouterShared
	}
	for rival := range rt.routerIDs[id] {
		if rival < t.name {
			return 0
		}
	}
	return id
}

func (rt *routing) routerProblem(t *tenant) string {
	switch {
	case t.local == 0 && t.exposing == 0 || !rt.settings.routes() || rt.joins(t) != 0:
		return ""
	case rt.routers[t.name] == 0:
		return "it has none yet: its networks do not reach each other"
	}
	return fmt.Sprintf("its number %d belongs to another tenant: its networks do not reach each other", rt.routers[t.name])
}
