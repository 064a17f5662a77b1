package picture

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Tenants that share networks with those that are present here are mirrored too, in
// forwarding mode routing: their endpoints are reached, and judged, here.

// partnersLocked returns the tenants that those present here share networks with.
func (c *Cluster) partnersLocked() map[model.TenantName]bool {
	out := map[model.TenantName]bool{}
	global := c.mirrors[""]
	if global == nil {
		return out
	}
	values := global.values
	if c.held != nil {
		values = global.seen
	}
	if g, known := values[tables.GlobalKey{}].(model.Global); !known || g.FwdMode != model.FwdRouting {
		return out
	}
	for name, m := range c.mirrors {
		t, known := values[name].(model.Tenant)
		if name == "" || !known || m.refs == 0 && len(m.endpoints) == 0 {
			continue
		}
		for _, k := range t.Shared {
			out[k.Tenant] = true
		}
		for _, client := range t.Clients {
			out[client] = true
		}
	}
	return out
}

// followPartnersLocked begins to mirror them. Before the first picture they are waited
// for, like the tenants of the attachments that stand.
func (c *Cluster) followPartnersLocked() {
	for t := range c.partnersLocked() {
		if c.startLocked(t); !c.entered {
			c.required[t] = true
		}
	}
}
