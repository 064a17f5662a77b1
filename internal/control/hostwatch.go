package control

import (
	"context"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/waiting"
)

// HostWatch follows which agents are registered and what they tell, for metrics
// and the leader's log. Make it with NewHostWatch and Run it.
type HostWatch struct {
	c *Controller

	mu       sync.Mutex
	alive    map[string]model.HostName // by the registration's key
	statuses map[string]HostStatus     // by the status's key
	changes  waiting.Changes
}

// NewHostWatch returns a watch that has seen nothing yet.
func (c *Controller) NewHostWatch() *HostWatch {
	return &HostWatch{c: c, alive: map[string]model.HostName{}, statuses: map[string]HostStatus{}}
}

// Run follows the store until ctx ends; then it returns nil.
func (w *HostWatch) Run(ctx context.Context) error {
	err := w.c.store.Mirror(ctx, []string{cluster.AgentScope, tables.HostStatusScope}, func(b store.Batch) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if b.Snapshot {
			clear(w.alive)
			clear(w.statuses)
		}
		for _, e := range b.Events {
			w.enter(e)
		}
		w.changes.Tell()
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end is why it failed
	}
	return err
}

func (w *HostWatch) enter(e store.Event) {
	delete(w.alive, e.KV.Key)
	delete(w.statuses, e.KV.Key)
	switch {
	case e.Deleted():
	case strings.HasPrefix(e.KV.Key, tables.HostStatusScope):
		if row, err := tables.HostStatuses.Decode(e.KV); err == nil {
			w.statuses[e.KV.Key] = row.Value
		}
	default:
		if s, ok := cluster.DecodeAgent(e.KV); ok {
			w.alive[e.KV.Key] = model.HostName(s.Hostname)
		}
	}
}

// Seen returns the hosts that are alive and what all have told.
func (w *HostWatch) Seen() (alive map[model.HostName]bool, statuses map[model.HostName]HostStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive, statuses = make(map[model.HostName]bool, len(w.alive)), make(map[model.HostName]HostStatus, len(w.statuses))
	for _, name := range w.alive {
		alive[name] = true
	}
	for _, st := range w.statuses {
		statuses[st.Host] = st
	}
	return alive, statuses
}

// Tell logs, for the leader, when a host goes away and when it is back, each
// once, until ctx ends. It begins after cluster.ServiceTTL: agents may have to
// register anew when the store was away, or everything starts at once.
func (w *HostWatch) Tell(ctx context.Context) {
	if waiting.Pause(ctx, cluster.ServiceTTL) != nil {
		return
	}
	away := map[model.HostName]bool{}
	for {
		changed := w.changes.Next()
		alive, statuses := w.Seen()
		for _, h := range w.c.Current().Hosts() {
			switch {
			case !alive[h.Name] && !away[h.Name]:
				away[h.Name] = true
				w.c.log.Warn("a host is away: its netplugin is not heard of; its containers keep talking by the last policy",
					"host", string(h.Name), "vtep", h.VTEP, "lastWord", statuses[h.Name].Updated)
			case alive[h.Name] && away[h.Name]:
				delete(away, h.Name)
				w.c.log.Info("a host is back", "host", string(h.Name), "vtep", h.VTEP)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
