package liveness

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Hosts are the hosts that the cluster knows.
type Hosts interface {
	List() []model.Host
	// TooManyAway reports whether so many are away that nothing is concluded.
	TooManyAway(alive map[model.HostName]bool) bool
}

// Watch follows which agents are registered and what they report, for metrics and the
// leader's log. Make it with NewWatch and Run it.
type Watch struct {
	// OnEvent gets, on the leader, events that are for others than its log; nil = no call.
	// It returns soon.
	OnEvent func(Event)

	store      store.Store
	heartbeats *Heartbeats
	hosts      Hosts
	log        *slog.Logger

	mu         sync.Mutex
	registered map[string]model.HostName    // by the registration's key
	statuses   map[string]tables.HostStatus // by the status's key
	heard      map[string]StatusArrival     // when the status came, by its key
	leased     map[string]model.HostName    // by netmasters: by the lease's key
	masters    map[string]bool              // by the registration's key
	changes    waiting.Changes
}

// NewWatch returns a watch that has seen nothing yet.
func NewWatch(st store.Store, heartbeats *Heartbeats, hosts Hosts, log *slog.Logger) *Watch {
	return &Watch{
		store: st, heartbeats: heartbeats, hosts: hosts, log: log,
		registered: map[string]model.HostName{}, statuses: map[string]tables.HostStatus{}, heard: map[string]StatusArrival{},
		leased: map[string]model.HostName{}, masters: map[string]bool{},
	}
}

// Run follows the store until ctx ends; then it returns nil.
func (w *Watch) Run(ctx context.Context) error {
	err := w.store.Mirror(ctx, []string{cluster.AgentScope, cluster.MasterScope, tables.HostStatusScope, tables.HostLeasesScope}, func(b store.Batch) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		was := w.heard
		if b.Snapshot {
			clear(w.registered)
			clear(w.statuses)
			w.heard = map[string]StatusArrival{}
			clear(w.leased)
			clear(w.masters)
		}
		for _, e := range b.Events {
			had, known := was[e.KV.Key]
			w.enter(e)
			switch st, there := w.statuses[e.KV.Key]; {
			case !there:
			case b.Listed && known && had.word == st.Updated:
				w.heard[e.KV.Key] = had
			default:
				w.heard[e.KV.Key] = StatusArrival{At: time.Now(), Listed: b.Listed, word: st.Updated}
			}
		}
		w.changes.Notify()
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end is why it failed
	}
	return err
}

func (w *Watch) enter(e store.Event) {
	delete(w.registered, e.KV.Key)
	delete(w.statuses, e.KV.Key)
	delete(w.heard, e.KV.Key)
	delete(w.leased, e.KV.Key)
	delete(w.masters, e.KV.Key)
	switch {
	case e.Deleted():
	case strings.HasPrefix(e.KV.Key, tables.HostStatusScope):
		if row, err := tables.HostStatuses.Decode(e.KV); err == nil {
			w.statuses[e.KV.Key] = row.Value
		}
	case strings.HasPrefix(e.KV.Key, tables.HostLeasesScope):
		if row, err := tables.HostLeases.Decode(e.KV); err == nil && row.Value.Kept {
			w.leased[e.KV.Key] = row.Value.Host
		}
	case strings.HasPrefix(e.KV.Key, cluster.MasterScope):
		w.masters[e.KV.Key] = true
	default:
		if s, ok := cluster.DecodeAgent(e.KV); ok {
			w.registered[e.KV.Key] = model.HostName(s.Hostname)
		}
	}
}

// Seen returns the hosts that are alive, as the list of hosts has it, and what all
// report.
func (w *Watch) Seen() (alive map[model.HostName]bool, statuses map[model.HostName]tables.HostStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive, statuses = make(map[model.HostName]bool, len(w.registered)), make(map[model.HostName]tables.HostStatus, len(w.statuses))
	for _, name := range w.registered {
		alive[name] = true
	}
	if len(w.masters) <= 1 { // see Heartbeats.Overdue
		for _, name := range w.leased {
			if w.heartbeats.isOverdue(name) {
				delete(alive, name)
			}
		}
	}
	for _, st := range w.statuses {
		statuses[st.Host] = st
	}
	return alive, statuses
}

// StatusArrival is when a host's last status came here, which no clock of a host can change.
type StatusArrival struct {
	At     time.Time
	Listed bool   // it was there when this watch began, or went on: it is older than At
	word   string // its Updated
}

// StatusArrivals returns that for all hosts.
func (w *Watch) StatusArrivals() map[string]StatusArrival {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]StatusArrival, len(w.heard))
	for key, h := range w.heard {
		out[string(w.statuses[key].Host)] = h
	}
	return out
}

// ReportEvents reports, for the leader, when a host goes away, when it is back, and when it has
// rolled back a change by itself, each once, until ctx ends. It begins after
// cluster.ServiceTTL: agents may have to register again when the store was away, or
// everything starts at once.
func (w *Watch) ReportEvents(ctx context.Context) {
	if waiting.Pause(ctx, cluster.ServiceTTL) != nil {
		return
	}
	t := reporter{w, map[model.HostName]bool{}, map[model.HostName]string{}}
	for {
		changed := w.changes.Next()
		t.report(w.Seen())
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
