package liveness

import (
	"context"
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

// Heartbeats is which agents this netmaster has heard of, and when. A heartbeat costs the
// store nothing: netmasters report them to the one that leads, which counts only while it
// has been there to receive them. With no netmaster, nothing about a host expires.
type Heartbeats struct {
	store store.Reader
	born  time.Time // since when it can receive them

	mu         sync.Mutex                          // guards what follows
	leases     map[model.HostName]tables.HostLease // as this netmaster has written them
	last       map[model.HostName]time.Time
	unreported map[model.HostName]bool // the leader does not know of it yet
	leaderLost error                   // why the leader cannot be reached; nil = it can
}

// NewHeartbeats returns Heartbeats that begin now.
func NewHeartbeats(st store.Reader) *Heartbeats { return &Heartbeats{store: st, born: time.Now()} }

// Beat notes a heartbeat. It reports whether it is of a lease that this netmaster has
// written; of another one it does not count.
func (hb *Heartbeats) Beat(lease tables.HostLease) bool {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.leases[lease.Host] != lease {
		return false
	}
	hb.noteLocked(lease.Host, time.Now())
	return true
}

// Add notes a lease that this netmaster has written, and its heartbeat.
func (hb *Heartbeats) Add(lease tables.HostLease) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.leases == nil {
		hb.leases = map[model.HostName]tables.HostLease{}
	}
	hb.leases[lease.Host] = lease
	hb.noteLocked(lease.Host, time.Now())
}

func (hb *Heartbeats) noteLocked(name model.HostName, now time.Time) {
	if hb.last == nil {
		hb.last, hb.unreported = map[model.HostName]time.Time{}, map[model.HostName]bool{}
	}
	hb.last[name] = now
	hb.unreported[name] = true
}

// Forget forgets a host whose agent has ended.
func (hb *Heartbeats) Forget(name model.HostName) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	delete(hb.leases, name)
	delete(hb.last, name)
	delete(hb.unreported, name)
}

// Last returns when the last heartbeat of a host came; the zero time = none did.
func (hb *Heartbeats) Last(name model.HostName) time.Time {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	return hb.last[name]
}

// OverdueAfter is after how long a heartbeat is missed: twice the time between them, and a
// second.
const OverdueAfter = 7 * time.Second

// isOverdue reports whether this netmaster misses the heartbeat of a host. It counts from
// its own beginning.
func (hb *Heartbeats) isOverdue(name model.HostName) bool {
	last := hb.Last(name)
	if last.Before(hb.born) {
		last = hb.born
	}
	return time.Since(last) >= OverdueAfter
}

// Overdue returns which of some registered hosts are away before the registry shows it:
// hosts that netmasters keep there, and of which the only netmaster of the cluster gets no
// heartbeat. Of several netmasters only the leader gets all heartbeats, and it deletes
// registrations: then Overdue returns none.
func (hb *Heartbeats) Overdue(ctx context.Context, names ...model.HostName) (map[model.HostName]bool, error) {
	out := map[model.HostName]bool{}
	asked := false
	for _, name := range names {
		if !hb.isOverdue(name) {
			continue
		}
		if !asked {
			masters, err := cluster.Services(ctx, hb.store, cluster.ServiceMaster)
			if err != nil {
				return nil, err
			}
			if len(masters) > 1 {
				return out, nil
			}
			asked = true
		}
		kv, err := hb.store.Get(ctx, tables.HostLeases.Key(name))
		if err != nil {
			return nil, fmt.Errorf("read the lease on the name of host %q: %w", name, err)
		}
		lease, err := tables.HostLeases.Decode(kv)
		out[name] = err == nil && lease.Exists() && lease.Value.Kept // else one of an earlier version, or gone: the registry tells of these
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

// Requeue has TakeUnreported return hosts again, which the netmaster that leads was not sent.
func (hb *Heartbeats) Requeue(names []model.HostName) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	for _, name := range names {
		if _, ok := hb.last[name]; ok { // else it was forgotten meanwhile
			hb.unreported[name] = true
		}
	}
}

// SetLeaderLost says why the netmaster that leads cannot be reached; nil = it can. Agents
// are then sent to another netmaster.
func (hb *Heartbeats) SetLeaderLost(why error) {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	hb.leaderLost = why
}

// LeaderLost is nil, or of kind model.ErrUnavailable.
func (hb *Heartbeats) LeaderLost() error {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	if hb.leaderLost == nil {
		return nil
	}
	return model.Errorf(model.ErrUnavailable, "this netmaster cannot reach the leader: %w", hb.leaderLost)
}

// TakeUnreported returns the hosts of which heartbeats came since the last call, for the
// netmaster that leads.
func (hb *Heartbeats) TakeUnreported() []model.HostName {
	hb.mu.Lock()
	defer hb.mu.Unlock()
	names := slices.Sorted(maps.Keys(hb.unreported))
	clear(hb.unreported)
	return names
}
