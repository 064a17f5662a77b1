package statemirror

import (
	"maps"
	"slices"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// judge asks the guard whether to follow what the mirrors deliver, and does.
func (c *State) judge() {
	if c.Guard.follows() {
		return
	}
	if !c.Guard.entered() {
		c.subscribe()
	}
	s, complete := c.Guard.survey(c.mirrors)
	if !complete {
		return
	}
	own := c.Agent.Own()
	awaited := func(older bool) []string { return c.Guard.hostsThatWouldLose(c.mirrors, s.of, older, c.Hosts.previous) }
	if c.Guard.judge(s, len(own), c.Guard.missing(c.Endpoints.lost(own)), awaited) {
		c.followStore(s.of)
	}
}

// followStore enters the staged records and follows from now on.
func (c *State) followStore(of store.Incarnation) {
	wasFrozen, err := c.Guard.accept()
	if err != nil {
		return
	}
	rev, place := store.Revision(0), ""
	for _, m := range c.mirrors.byScope {
		if m.rev > rev {
			rev, place = m.rev, m.place
		}
		seen := m.seen
		m.seen, m.older, m.behind = nil, false, false
		if m.staged {
			m.values = seen
			continue
		}
		c.input.enterDifference(m, m.values, seen, 0)
		if m.ready {
			c.input.setFollowed(m, true)
		}
	}
	c.Endpoints.releaseRead()
	c.subscribe()
	c.Guard.position = StorePosition{Version: c.Guard.position.Version, Incarnation: of, Revision: rev, Place: place}
	c.mirrors.rev, c.mirrors.dirty = rev, rev
	c.checkpointUnconfirmed()
	clear(c.Guard.refused)
	if wasFrozen {
		c.Log.Info("the store is watched again", "store", of.String(), "revision", int64(rev))
	}
	c.Agent.OnFreeze("")
	c.Agent.OnOwnHost()
	c.changes.Notify()
	c.Agent.Kick("store")
}

// subscribe begins to mirror what concerns this host. Before the first desired state
// it is waited for, like what the attachments that stand need.
func (c *State) subscribe() {
	if !c.Guard.follows() && c.Guard.entered() {
		return // what is followed stays as the desired state does
	}
	set := c.mirrors
	set.subscribed = c.interests.scopes()
	for p := range set.subscribed {
		if p.Network != "" && set.byScope[allEndpointsScope(p.Tenant)] != nil {
			continue
		}
		if set.start(p); !c.Guard.entered() {
			set.required[p] = true
		}
	}
	for _, m := range set.byScope {
		if m.staged {
			c.takeOver(m)
		}
	}
	set.reconsider = false
}

// takeOver has a tenant's endpoints followed by one mirror in place of one for each
// network, as soon as that one is not behind any of these.
func (c *State) takeOver(all *mirror) {
	set := c.mirrors
	var singles []*mirror
	for p, m := range set.byScope {
		if p.Tenant == all.part.Tenant && p.Network != "" {
			singles = append(singles, m)
		}
	}
	if c.Guard.entered() {
		if !all.ready || !c.Guard.follows() {
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
		set.drop(m)
		maps.Copy(was, m.values)
		maps.Copy(all.endpoints, m.endpoints)
	}
	if !c.Guard.entered() { // nothing is in force yet
		return
	}
	c.input.enterDifference(all, was, all.values, all.rev)
	c.input.setFollowed(all, true)
	for _, m := range singles {
		c.input.setFollowed(m, false)
	}
	set.dirty = max(set.dirty, all.rev)
	c.Agent.Kick("all endpoints of a tenant")
}

// Acquire makes the endpoints of a network mirrored, with the rest of its tenant, and
// keeps them so until Release.
func (c *State) Acquire(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquire(k)
}

func (c *State) acquire(k model.NetworkKey) {
	c.mirrors.use(k)
	if c.Guard.follows() {
		c.subscribe()
	}
}

// AcquireTenant is Acquire of the rest of a tenant alone, until ReleaseTenant.
func (c *State) AcquireTenant(t model.TenantName) { c.Acquire(model.NetworkKey{Tenant: t}) }

// Require is Acquire, and holds the first desired state back until all that is in. It is for
// attachments that stand when the agent starts.
func (c *State) Require(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acquire(k)
	c.mirrors.require(k)
}

// RequireTenant is Require of the rest of a tenant alone.
func (c *State) RequireTenant(t model.TenantName) { c.Require(model.NetworkKey{Tenant: t}) }

// Release ends what Acquire or Require began: what was mirrored stays so for some
// minutes.
func (c *State) Release(k model.NetworkKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors.release(TenantScope(k.Tenant))
	if k.Name != "" {
		c.mirrors.release(EndpointsScope(k))
	}
	c.mirrors.reconsider = true
}

// ReleaseTenant ends what AcquireTenant began.
func (c *State) ReleaseTenant(t model.TenantName) { c.Release(model.NetworkKey{Tenant: t}) }

// dropUnused ends the mirrors of what has not concerned anything here for a while. The lock
// is not held.
func (c *State) dropUnused(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Guard.follows() || !c.Guard.entered() {
		c.mirrors.subscribed = c.interests.scopes()
	}
	unused := c.mirrors.unused(now, linger)
	for _, m := range unused {
		c.mirrors.drop(m)
		if m.staged {
			continue
		}
		c.removeDelivered(m)
	}
	if len(unused) > 0 {
		c.Agent.Kick("what does not concern this host any more")
	}
}

// unused returns the mirrors that nothing here has needed for so long.
func (s *mirrorSet) unused(now time.Time, linger time.Duration) (drop []*mirror) {
	of := map[model.TenantName]bool{} // tenants with networks that concern this host
	for p := range s.subscribed {
		of[p.Tenant] = of[p.Tenant] || !p.isTenant()
	}
	needed := func(p Scope, m *mirror) bool {
		switch {
		case p.isTenant():
			return s.subscribed[p] || s.hasEndpointsHere(p.Tenant)
		case p.All:
			return of[p.Tenant] || s.hasEndpointsHere(p.Tenant)
		}
		return s.subscribed[p] || s.uses[p] > 0 || len(m.endpoints) > 0
	}
	gone := map[model.TenantName]bool{} // with all that there is of it
	for p, m := range s.byScope {
		switch {
		case p.Tenant == "":
		case needed(p, m):
			m.unused = now
		case now.Sub(m.unused) >= linger:
			drop = append(drop, m)
			gone[p.Tenant] = gone[p.Tenant] || p.isTenant()
		}
	}
	for p, m := range s.byScope {
		if gone[p.Tenant] && !slices.Contains(drop, m) {
			drop = append(drop, m)
		}
	}
	return drop
}
