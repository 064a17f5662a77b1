package compile

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
)

// SetTenant records a tenant.
func (c *Compiler) SetTenant(t model.Tenant) {
	c.putRouter(t.Name, t.Router)
	c.putShared(t.Name, t.Shared)
}

// DeleteTenant forgets a tenant; its networks reach each other no longer.
func (c *Compiler) DeleteTenant(name model.TenantName) {
	c.putRouter(name, 0)
	c.putShared(name, nil)
}

func (c *Compiler) putRouter(name model.TenantName, id model.RouterID) {
	old := c.routers[name]
	if old == id {
		return
	}
	if delete(c.routers, name); old != 0 {
		removeFrom(c.routerIDs, old, name)
	}
	if id != 0 {
		c.routers[name] = id
		addTo(c.routerIDs, id, name)
	}
	c.touchRouter(c.tenants[name])
	for _, id := range []model.RouterID{old, id} {
		for rival := range c.routerIDs[id] {
			c.touchRouter(c.tenants[rival])
		}
	}
}

// touchRouter has it looked at which of a tenant's networks are joined, and where.
func (c *Compiler) touchRouter(t *tenant) {
	if t == nil {
		return
	}
	c.dirtyTenants.add(t)
	for n := range t.networks {
		c.dirtyNetworks.add(n)
		c.touchSegments(n)
	}
}

// countLocal follows how many endpoints a tenant has on this host. The first one
// brings all networks that are joined to its own into the picture.
func (c *Compiler) countLocal(t *tenant, by int) {
	was := t.local
	if t.local += by; (was == 0) != (t.local == 0) {
		c.touchRouter(t)
		for p := range c.partners(t.name) {
			c.touchRouter(c.tenants[p])
		}
	}
}

// routes tells whether tenants' networks are joined.
func (c *Compiler) routes() bool { return c.global != nil && c.global.FwdMode == model.FwdRouting }

// joins returns the router that joins a tenant's networks, 0 = none does. Of
// tenants with one number, of which control gives each once, the first by name has it;
// all that share networks have one.
func (c *Compiler) joins(t *tenant) model.RouterID {
	id := c.routers[t.name]
	switch {
	case !c.routes():
		return 0
	case c.shares(t.name):
		return model.RouterShared
	}
	for rival := range c.routerIDs[id] {
		if rival < t.name {
			return 0
		}
	}
	return id
}

func (c *Compiler) routerProblem(t *tenant) string {
	switch {
	case t.local == 0 && t.exposing == 0 || !c.routes() || c.joins(t) != 0:
		return ""
	case c.routers[t.name] == 0:
		return "it has none yet: its networks do not reach each other"
	}
	return fmt.Sprintf("its number %d belongs to another tenant: its networks do not reach each other", c.routers[t.name])
}

// here tells whether a network has endpoints on a host.
func (n *network) here(host model.HostName) bool { return len(n.byHost[host]) > 0 }

// present tells whether a network or a segment belongs into the picture: it has endpoints
// on this host, or concerns what is here; and its endpoints are known.
func (c *Compiler) present(n *network) bool {
	return c.follows(n.root()) && (n.placed > 0 || n.base == nil && c.concerns(n, c.isHere))
}
