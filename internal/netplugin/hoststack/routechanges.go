package hoststack

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// rollbackWindow is how long after a change its routes can be taken back.
const rollbackWindow = 10 * time.Minute

// RouteChanges remembers which routes this host got together, and which of them are taken
// back. Its methods are safe for concurrent use; the zero value has no changes.
type RouteChanges struct {
	mu        sync.Mutex
	added     map[time.Time][]netip.Prefix
	suspended map[netip.Prefix]time.Time // when they were added
}

// note notes routes that were added together.
func (c *RouteChanges) note(added []netip.Prefix) {
	if len(added) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(c.added, func(at time.Time, _ []netip.Prefix) bool { return now.Sub(at) > rollbackWindow })
	if c.added == nil {
		c.added = map[time.Time][]netip.Prefix{}
	}
	c.added[now] = added
}

// Newest returns when the routes were added that came last after since and are not taken
// back; zero = there are none.
func (c *RouteChanges) Newest(since time.Time) (newest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, routes := range c.added {
		if at.After(since) && at.After(newest) && !slices.ContainsFunc(routes, c.isSuspended) {
			newest = at
		}
	}
	return newest
}

// Suspend takes back the routes that were added at a time, with the next Apply that looks.
func (c *RouteChanges) Suspend(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.suspended == nil {
		c.suspended = map[netip.Prefix]time.Time{}
	}
	for _, p := range c.added[at] {
		c.suspended[p] = at
	}
}

// Resume ends a Suspend.
func (c *RouteChanges) Resume(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.suspended, func(_ netip.Prefix, added time.Time) bool { return added.Equal(at) })
}

// Suspended returns the routes that are taken back.
func (c *RouteChanges) Suspended() []netip.Prefix {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Keys(c.suspended), netip.Prefix.Compare)
}

// errSuspended is why such a route is not there.
var errSuspended = model.Errorf(model.ErrConflict, "%s", Suspended)

// Suspended says why a route is taken back, and what to do.
const Suspended = "its route is rolled back: with it no netmaster answered, and without it one does; delete it or give it other addresses, or restart netplugin to add the route again"

// isSuspended reports whether a route is taken back. The caller holds c.mu.
func (c *RouteChanges) isSuspended(p netip.Prefix) bool {
	_, is := c.suspended[p]
	return is
}

// suspends reports whether a route is taken back.
func (c *RouteChanges) suspends(p netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isSuspended(p)
}

// forget forgets the routes that are wanted no more.
func (c *RouteChanges) forget(wanted func(netip.Prefix) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.suspended, func(p netip.Prefix, _ time.Time) bool { return !wanted(p) })
}
