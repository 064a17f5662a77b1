package statemirror

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A host follows the global part, the rests of the tenants that it has to do with, and
// the endpoints of the networks that concern it (docs/design/scale.md): what its own
// containers can reach, or answer.

// manyNetworks is how many networks of a tenant a host follows one by one: of more, one
// mirror of all endpoints of the tenant costs the store less.
const manyNetworks = 16

// rowsLocked are what a mirror has of the store, in force or, before the first picture,
// kept aside.
func (c *State) rowsLocked(m *mirror) map[any]any {
	if c.frozen != nil && !c.entered {
		return m.seen
	}
	return m.values
}

// isHereLocked tells whether a tenant has attachments or endpoints on this host.
func (c *State) isHereLocked(t model.TenantName) bool {
	if c.uses[TenantScope(t)] > 0 {
		return true
	}
	for p, m := range c.mirrors {
		if p.Tenant == t && len(m.endpoints) > 0 {
			return true
		}
	}
	return false
}

// partnersLocked returns the tenants that those present here share networks with: in
// forwarding mode routing these are reached, and judged, here.
func (c *State) partnersLocked(isHere func(model.TenantName) bool) map[model.TenantName]bool {
	out := map[model.TenantName]bool{}
	global := c.mirrors[Scope{}]
	if global == nil {
		return out
	}
	values := c.rowsLocked(global)
	if g, known := c.effectiveLocked(tables.GlobalKey{}, values[tables.GlobalKey{}]).(model.Global); !known || c.mode.effective(g).FwdMode != model.FwdRouting {
		return out
	}
	for p := range c.mirrors {
		t, known := values[p.Tenant].(model.Tenant)
		if !p.isRest() || !known || !isHere(p.Tenant) {
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

// compilerLocked is who knows which networks concern this host: the Compiler, or before
// the first picture, one that is told what the rule needs of what is kept aside.
func (c *State) compilerLocked() *compile.Compiler {
	if c.frozen == nil || c.entered {
		return c.comp
	}
	x := compile.New(c.Host)
	for p, m := range c.mirrors {
		if p.Network != "" || p.All {
			continue
		}
		for _, v := range m.seen {
			switch v := v.(type) {
			case model.Global:
				x.SetGlobal(v)
			case model.Tenant:
				x.SetTenant(v)
			case model.Network:
				x.SetNetwork(v)
			case model.Service:
				x.SetService(v)
			case model.ClusterService:
				x.SetClusterService(v)
			}
		}
	}
	return x
}

// routedOutside tells whether a router outside of the cluster may lead to a network: then
// its containers' names are answered on others like it.
func routedOutside(n model.Network) bool {
	return n.Encap == model.EncapVLAN && (n.Gateway.IsValid() || n.Gateway6.IsValid())
}

// interestsLocked returns the Parts that concern this host beside the rests that
// attachments need, as far as it can be said by what is known.
func (c *State) interestsLocked() map[Scope]bool {
	memo := map[model.TenantName]bool{}
	isHere := func(t model.TenantName) bool {
		is, known := memo[t]
		if !known {
			is = c.isHereLocked(t)
			memo[t] = is
		}
		return is
	}
	out := map[Scope]bool{}
	for t := range c.partnersLocked(isHere) {
		out[TenantScope(t)] = true
	}
	for _, t := range c.spokenOfLocked() {
		out[TenantScope(t)] = true
	}
	comp := c.compilerLocked()
	for p, m := range c.mirrors {
		if !p.isRest() {
			continue
		}
		one, outside, led := []Scope{}, []Scope{}, false
		for _, v := range c.rowsLocked(m) {
			n, is := v.(model.Network)
			if !is {
				continue
			}
			if n, is = c.effectiveLocked(n.Key, n).(model.Network); !is {
				continue
			}
			part := EndpointsScope(n.Key)
			x := c.mirrors[part]
			used := c.uses[part] > 0 || x != nil && len(x.endpoints) > 0
			led = led || used && routedOutside(n)
			switch {
			case used, comp.Interest.Concerns(n.Key, isHere):
				one = append(one, part)
			case routedOutside(n):
				outside = append(outside, part)
			}
		}
		if led {
			one = append(one, outside...)
		}
		if len(one) > manyNetworks || comp.Interest.ConcernsAll(p.Tenant, isHere) {
			out[allEndpointsScope(p.Tenant)] = true
			continue
		}
		for _, part := range one {
			out[part] = true
		}
	}
	return out
}

// subscribeLocked begins to mirror what concerns this host. Before the first picture
// it is waited for, like what the attachments that stand need.
func (c *State) subscribeLocked() {
	if c.frozen != nil && c.entered {
		return // what is followed stays as the picture does
	}
	c.subscribed = c.interestsLocked()
	for p := range c.subscribed {
		if p.Network != "" && c.mirrors[allEndpointsScope(p.Tenant)] != nil {
			continue
		}
		if c.startLocked(p); !c.entered {
			c.required[p] = true
		}
	}
	for _, m := range c.mirrors {
		if m.staged {
			c.takeOverLocked(m)
		}
	}
	c.reconsider = false
}

// endpointsLocked is the mirror that has the endpoints of a network; nil = none.
func (c *State) endpointsLocked(k model.NetworkKey) *mirror {
	if all := c.mirrors[allEndpointsScope(k.Tenant)]; all != nil && !all.staged {
		return all
	}
	return c.mirrors[EndpointsScope(k)]
}

// takeOverLocked has a tenant's endpoints followed by one mirror in place of one for each
// network, as soon as that one is not behind any of these.
func (c *State) takeOverLocked(all *mirror) {
	var singles []*mirror
	for p, m := range c.mirrors {
		if p.Tenant == all.part.Tenant && p.Network != "" {
			singles = append(singles, m)
		}
	}
	if c.entered {
		if !all.ready || c.frozen != nil {
			return
		}
		for _, m := range singles {
			if m.changed > all.rev {
				return
			}
		}
	}
	all.staged = false
	was := map[any]any{}
	for _, m := range singles {
		m.end()
		delete(c.mirrors, m.part)
		delete(c.required, m.part)
		maps.Copy(was, m.values)
		maps.Copy(all.endpoints, m.endpoints)
	}
	if !c.entered { // nothing is in force yet
		return
	}
	for k := range was {
		if _, there := all.values[k]; !there {
			c.enterLocked(all, tables.Change{Key: k})
		}
	}
	for k, v := range all.values {
		if old, had := was[k]; !had || !reflect.DeepEqual(old, v) {
			c.enterLocked(all, tables.Change{Key: k, Value: v})
		}
	}
	c.followsLocked(all, true)
	for _, m := range singles {
		c.followsLocked(m, false)
	}
	c.dirty = max(c.dirty, all.rev)
	c.Kick("all endpoints of a tenant")
}

// followsLocked tells the Compiler that all endpoints of a mirror have been entered, or
// are followed no longer.
func (c *State) followsLocked(m *mirror, is bool) {
	switch {
	case m.part.All:
		c.comp.Interest.FollowAll(m.part.Tenant, is)
	case m.part.Network != "":
		c.comp.Interest.Follow(m.part.network(), is)
	}
}

// Acquire makes the endpoints of a network mirrored, with the rest of its tenant, and
// keeps them so until Release.
func (c *State) Acquire(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquireLocked(k)
}

func (c *State) acquireLocked(k model.NetworkKey) {
	c.uses[TenantScope(k.Tenant)]++
	c.startLocked(TenantScope(k.Tenant))
	if k.Name != "" {
		if c.uses[EndpointsScope(k)]++; c.mirrors[allEndpointsScope(k.Tenant)] == nil {
			c.startLocked(EndpointsScope(k))
		}
	}
	if c.frozen == nil {
		c.subscribeLocked()
	}
}

// AcquireTenant is Acquire of the rest of a tenant alone, until ReleaseTenant.
func (c *State) AcquireTenant(t model.TenantName) { c.Acquire(model.NetworkKey{Tenant: t}) }

// Require is Acquire, and holds the first picture back until all that is in. It is for
// attachments that stand when the agent starts.
func (c *State) Require(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquireLocked(k)
	c.required[TenantScope(k.Tenant)] = true
	if k.Name != "" && c.mirrors[EndpointsScope(k)] != nil {
		c.required[EndpointsScope(k)] = true
	}
}

// RequireTenant is Require of the rest of a tenant alone.
func (c *State) RequireTenant(t model.TenantName) { c.Require(model.NetworkKey{Tenant: t}) }

// Release ends what Acquire or Require began: what was mirrored stays so for some
// minutes.
func (c *State) Release(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseLocked(TenantScope(k.Tenant))
	if k.Name != "" {
		c.releaseLocked(EndpointsScope(k))
	}
	c.reconsider = true
}

// ReleaseTenant ends what AcquireTenant began.
func (c *State) ReleaseTenant(t model.TenantName) { c.Release(model.NetworkKey{Tenant: t}) }

func (c *State) releaseLocked(p Scope) {
	if c.uses[p]--; c.uses[p] > 0 {
		return
	}
	delete(c.uses, p)
	if m := c.mirrors[p]; m != nil {
		m.unused = time.Now()
	}
}

// dropUnused ends the mirrors of what has not concerned anything here for a while.
func (c *State) dropUnused(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.frozen == nil || !c.entered {
		c.subscribed = c.interestsLocked()
	}
	of := map[model.TenantName]bool{} // tenants with networks that concern this host
	for p := range c.subscribed {
		of[p.Tenant] = of[p.Tenant] || !p.isRest()
	}
	needed := func(p Scope, m *mirror) bool {
		switch {
		case p.isRest():
			return c.subscribed[p] || c.isHereLocked(p.Tenant)
		case p.All:
			return of[p.Tenant] || c.isHereLocked(p.Tenant)
		}
		return c.subscribed[p] || c.uses[p] > 0 || len(m.endpoints) > 0
	}
	gone := map[model.TenantName]bool{} // with all that there is of it
	var drop []*mirror
	for p, m := range c.mirrors {
		switch {
		case p.Tenant == "":
		case needed(p, m):
			m.unused = now
		case now.Sub(m.unused) >= linger:
			drop = append(drop, m)
			gone[p.Tenant] = gone[p.Tenant] || p.isRest()
		}
	}
	for p, m := range c.mirrors {
		if gone[p.Tenant] && !slices.Contains(drop, m) {
			drop = append(drop, m)
		}
	}
	for _, m := range drop {
		m.end()
		delete(c.mirrors, m.part)
		delete(c.required, m.part)
		if m.staged {
			continue
		}
		c.followsLocked(m, false)
		for k := range m.values {
			c.enterLocked(m, tables.Change{Key: k})
		}
	}
	if len(drop) > 0 {
		c.Kick("what does not concern this host any more")
	}
}
