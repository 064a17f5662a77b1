package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Heartbeats is which agents this netmaster has heard of, and when. What is heard
// costs the store nothing: the others report to the netmaster that leads, which
// counts only while it has been there to hear. With no netmaster, nothing about
// a host expires. HostLeases, Hosts and the API call it.
type Heartbeats struct {
	commits *Committer
	born    time.Time // since when it can hear them

	mu     sync.Mutex                          // guards what follows
	claims map[model.HostName]tables.HostLease // as this netmaster has kept them
	heard  map[model.HostName]time.Time
	untold map[model.HostName]bool // not told to the leader yet
	deaf   error                   // why the leader is not told; nil = it is
}

// hears notes a sign of life, and tells whether it is of a claim that this
// netmaster has kept; of another it is none.
func (hb *Heartbeats) hears(claim tables.HostLease) bool {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.claims[claim.Host] != claim {
		return false
	}
	hb.noteLocked(claim.Host, time.Now())
	return true
}

// has notes that a claim is kept.
func (hb *Heartbeats) has(claim tables.HostLease) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.claims == nil {
		hb.claims = map[model.HostName]tables.HostLease{}
	}
	hb.claims[claim.Host] = claim
	hb.noteLocked(claim.Host, time.Now())
}

func (hb *Heartbeats) noteLocked(name model.HostName, now time.Time) {
	if hb.heard == nil {
		hb.heard, hb.untold = map[model.HostName]time.Time{}, map[model.HostName]bool{}
	}
	hb.heard[name] = now
	hb.untold[name] = true
}

func (hb *Heartbeats) forget(name model.HostName) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	delete(hb.claims, name)
	delete(hb.heard, name)
	delete(hb.untold, name)
}

func (hb *Heartbeats) last(name model.HostName) time.Time {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	return hb.heard[name]
}

// speaks is the longest that an agent which lives says nothing: twice the time
// between its signs of life, and a second.
const speaks = 7 * time.Second

// quiet tells whether this netmaster has heard nothing of a host for longer than
// speaks. It counts from its own beginning.
func (hb *Heartbeats) quiet(name model.HostName) bool {
	heard := hb.last(name)
	if heard.Before(hb.born) {
		heard = hb.born
	}
	return time.Since(heard) >= speaks
}

// silent returns which of some registered hosts are away before the registry shows it:
// hosts that netmasters keep there, and that the only netmaster of the cluster does not
// hear. Of several netmasters only the leader gets all heartbeats, and it deletes
// registrations: then silent returns none.
func (hb *Heartbeats) silent(ctx context.Context, names ...model.HostName) (map[model.HostName]bool, error) {
	out := map[model.HostName]bool{}
	asked := false
	for _, name := range names {
		if !hb.quiet(name) {
			continue
		}
		if !asked {
			masters, err := cluster.Services(ctx, hb.commits.store, cluster.ServiceMaster)
			if err != nil {
				return nil, err
			}
			if len(masters) > 1 {
				return out, nil
			}
			asked = true
		}
		kv, err := hb.commits.store.Get(ctx, tables.HostLeases.Key(name))
		if err != nil {
			return nil, fmt.Errorf("read the lease on the name of host %q: %w", name, err)
		}
		claim, err := tables.HostLeases.Decode(kv)
		out[name] = err == nil && claim.Exists() && claim.Value.Kept // else one of an earlier version, or gone: the registry tells of these
	}
	return out, nil
}

// Heard notes that another netmaster has heard of agents.
func (hb *Heartbeats) Heard(names []model.HostName) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	for _, name := range names {
		hb.noteLocked(name, time.Now())
	}
}

// Retell has agents told once more that Untold returned and the netmaster
// that leads was not told of. They have not been heard of again.
func (hb *Heartbeats) Retell(names []model.HostName) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	for _, name := range names {
		if _, ok := hb.heard[name]; ok { // else it was forgotten meanwhile
			hb.untold[name] = true
		}
	}
}

// SetDeaf says why the netmaster that leads does not hear what this one does; nil
// = it does. Agents are then sent to another netmaster.
func (hb *Heartbeats) SetDeaf(why error) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	hb.deaf = why
}

// isDeaf is nil, or of kind model.ErrUnavailable.
func (hb *Heartbeats) isDeaf() error {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.deaf == nil {
		return nil
	}
	return model.Errorf(model.ErrUnavailable, "this netmaster cannot reach the leader: %w", hb.deaf)
}

// Untold returns the agents heard of since the last call, for the netmaster
// that leads.
func (hb *Heartbeats) Untold() []model.HostName {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	names := slices.Sorted(maps.Keys(hb.untold))
	clear(hb.untold)
	return names
}
