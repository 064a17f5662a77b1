package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// hearing is which agents this netmaster has heard of, and when. What is heard
// costs the store nothing: the netmaster that leads is told by the others, and
// counts only while it has been there to hear. With no netmaster, nothing about
// a host expires.
type hearing struct {
	mu     sync.Mutex
	claims map[model.HostName]tables.HostClaim // as this netmaster has kept them
	heard  map[model.HostName]time.Time
	untold map[model.HostName]bool // not told to the leader yet
	deaf   error                   // why the leader is not told; nil = it is
}

// hears notes a sign of life, and tells whether it is of a claim that this
// netmaster has kept; of another it is none.
func (h *hearing) hears(claim tables.HostClaim) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims[claim.Host] != claim {
		return false
	}
	h.noteLocked(claim.Host, time.Now())
	return true
}

// has notes that a claim is kept.
func (h *hearing) has(claim tables.HostClaim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claims == nil {
		h.claims = map[model.HostName]tables.HostClaim{}
	}
	h.claims[claim.Host] = claim
	h.noteLocked(claim.Host, time.Now())
}

func (h *hearing) noteLocked(name model.HostName, now time.Time) {
	if h.heard == nil {
		h.heard, h.untold = map[model.HostName]time.Time{}, map[model.HostName]bool{}
	}
	h.heard[name] = now
	h.untold[name] = true
}

func (h *hearing) forget(name model.HostName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.claims, name)
	delete(h.heard, name)
	delete(h.untold, name)
}

func (h *hearing) last(name model.HostName) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[name]
}

// speaks is the longest that an agent which lives says nothing: twice the time
// between its signs of life, and a second.
const speaks = 7 * time.Second

// quiet tells whether this netmaster has heard nothing of a host for longer than
// speaks. It counts from its own beginning.
func (c *Controller) quiet(name model.HostName) bool {
	heard := c.hearing.last(name)
	if heard.Before(c.born) {
		heard = c.born
	}
	return time.Since(heard) >= speaks
}

// silent returns which of some hosts that are registered are away, though the registry does
// not know it yet: hosts that netmasters keep there, and that the one netmaster of
// the cluster does not hear. Of several only the one that leads hears of all
// hosts, and it is who takes their registrations away: nobody is silent then.
func (c *Controller) silent(ctx context.Context, names ...model.HostName) (map[model.HostName]bool, error) {
	out := map[model.HostName]bool{}
	asked := false
	for _, name := range names {
		if !c.quiet(name) {
			continue
		}
		if !asked {
			masters, err := cluster.Services(ctx, c.store, cluster.ServiceMaster)
			if err != nil {
				return nil, err
			}
			if len(masters) > 1 {
				return out, nil
			}
			asked = true
		}
		kv, err := c.store.Get(ctx, tables.HostClaims.Key(name))
		if err != nil {
			return nil, fmt.Errorf("read who has the name of host %q: %w", name, err)
		}
		claim, err := tables.HostClaims.Decode(kv)
		out[name] = err == nil && claim.Exists() && claim.Value.Kept // else one of an earlier version, or gone: the registry tells of these
	}
	return out, nil
}

// HeardHosts notes that another netmaster has heard of agents.
func (c *Controller) HeardHosts(names []model.HostName) {
	h := &c.hearing
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.noteLocked(name, time.Now())
	}
}

// RetellHosts has agents told once more that UntoldHosts returned and the netmaster
// that leads was not told of. They have not been heard of again.
func (c *Controller) RetellHosts(names []model.HostName) {
	h := &c.hearing
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		if _, ok := h.heard[name]; ok { // else it was forgotten meanwhile
			h.untold[name] = true
		}
	}
}

// SetDeaf says why the netmaster that leads does not hear what this one does; nil
// = it does. Agents are then sent to another netmaster.
func (c *Controller) SetDeaf(why error) {
	c.hearing.mu.Lock()
	defer c.hearing.mu.Unlock()
	c.hearing.deaf = why
}

// isDeaf is nil, or of kind model.ErrUnavailable.
func (h *hearing) isDeaf() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaf == nil {
		return nil
	}
	return model.Errorf(model.ErrUnavailable, "this netmaster does not reach the one that leads: %w", h.deaf)
}

// UntoldHosts returns the agents heard of since the last call, for the netmaster
// that leads.
func (c *Controller) UntoldHosts() []model.HostName {
	h := &c.hearing
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.Sorted(maps.Keys(h.untold))
	clear(h.untold)
	return names
}

const (
	// countEvery is how often hosts are counted out.
	countEvery = time.Second
	// countPause is a gap between two looks after which nothing may have been heard
	// either: the process, or its machine, stood still.
	countPause = 3 * countEvery
)

// CountOut ends, for the leader, the claims and registrations of hosts that no
// netmaster has heard of for cluster.ServiceTTL, until ctx ends or another leads;
// then it returns store.ErrFenced. It counts from its own beginning, and anew
// when this process stood still: silence that nobody could hear does not count.
func (c *Controller) CountOut(ctx context.Context, fence store.Fence) error {
	var mu sync.Mutex
	claims, seen := map[string]tables.HostClaim{}, map[string]time.Time{}
	var following sync.WaitGroup
	defer following.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	following.Go(func() {
		err := c.store.Mirror(ctx, []string{tables.HostClaimsScope}, func(b store.Batch) error {
			mu.Lock()
			defer mu.Unlock()
			if b.Snapshot {
				clear(claims)
			}
			for _, e := range b.Events {
				delete(claims, e.KV.Key)
				delete(seen, e.KV.Key)
				if row, err := tables.HostClaims.Decode(e.KV); err == nil && !e.Deleted() && row.Value.Kept {
					claims[e.KV.Key], seen[e.KV.Key] = row.Value, time.Now()
				}
			}
			return nil
		})
		if ctx.Err() == nil {
			c.log.Error("hosts that fall silent are not noticed any more", "error", err)
		}
	})
	began := time.Now()
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for last := began; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if now.Sub(last) > countPause {
			began = now
		}
		last = now
		mu.Lock()
		var silent []tables.HostClaim
		for key, claim := range claims {
			heard := c.hearing.last(claim.Host)
			for _, t := range []time.Time{began, seen[key]} {
				if t.After(heard) {
					heard = t
				}
			}
			if now.Sub(heard) >= cluster.ServiceTTL-countEvery {
				silent = append(silent, claim)
			}
		}
		mu.Unlock()
		for _, claim := range silent {
			err := c.forgetClaim(ctx, fence, claim)
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.Is(err, store.ErrFenced):
				return err
			case err != nil:
				c.log.Debug("a host that is not heard of is not counted out yet", "host", string(claim.Host), "error", err)
			}
		}
	}
}
