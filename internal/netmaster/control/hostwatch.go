package control

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// HostWatch follows which agents are registered and what they tell, for metrics
// and the leader's log. Make it with NewHostWatch and Run it.
type HostWatch struct {
	// OnEvent gets, on the leader, events that are for others than its log; nil = no call.
	// It returns soon.
	OnEvent func(HostEvent)

	hosts *Hosts

	mu         sync.Mutex
	registered map[string]model.HostName // by the registration's key
	statuses   map[string]HostStatus     // by the status's key
	heard      map[string]Heard          // when the status came, by its key
	kept       map[string]model.HostName // by netmasters: by the claim's key
	masters    map[string]bool           // by the registration's key
	changes    waiting.Changes
}

// NewHostWatch returns a watch that has seen nothing yet.
func (hs *Hosts) NewHostWatch() *HostWatch {
	return &HostWatch{
		hosts: hs, registered: map[string]model.HostName{}, statuses: map[string]HostStatus{}, heard: map[string]Heard{},
		kept: map[string]model.HostName{}, masters: map[string]bool{},
	}
}

// Run follows the store until ctx ends; then it returns nil.
func (w *HostWatch) Run(ctx context.Context) error {
	err := w.hosts.commits.store.Mirror(ctx, []string{cluster.AgentScope, cluster.MasterScope, tables.HostStatusScope, tables.HostLeasesScope}, func(b store.Batch) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		was := w.heard
		if b.Snapshot {
			clear(w.registered)
			clear(w.statuses)
			w.heard = map[string]Heard{}
			clear(w.kept)
			clear(w.masters)
		}
		for _, e := range b.Events {
			had, known := was[e.KV.Key]
			w.enter(e)
			switch st, told := w.statuses[e.KV.Key]; {
			case !told:
			case b.Listed && known && had.word == st.Updated:
				w.heard[e.KV.Key] = had
			default:
				w.heard[e.KV.Key] = Heard{At: time.Now(), Listed: b.Listed, word: st.Updated}
			}
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
	delete(w.registered, e.KV.Key)
	delete(w.statuses, e.KV.Key)
	delete(w.heard, e.KV.Key)
	delete(w.kept, e.KV.Key)
	delete(w.masters, e.KV.Key)
	switch {
	case e.Deleted():
	case strings.HasPrefix(e.KV.Key, tables.HostStatusScope):
		if row, err := tables.HostStatuses.Decode(e.KV); err == nil {
			w.statuses[e.KV.Key] = row.Value
		}
	case strings.HasPrefix(e.KV.Key, tables.HostLeasesScope):
		if row, err := tables.HostLeases.Decode(e.KV); err == nil && row.Value.Kept {
			w.kept[e.KV.Key] = row.Value.Host
		}
	case strings.HasPrefix(e.KV.Key, cluster.MasterScope):
		w.masters[e.KV.Key] = true
	default:
		if s, ok := cluster.DecodeAgent(e.KV); ok {
			w.registered[e.KV.Key] = model.HostName(s.Hostname)
		}
	}
}

// Seen returns the hosts that are alive, as Hosts.List has it, and what all
// have told.
func (w *HostWatch) Seen() (alive map[model.HostName]bool, statuses map[model.HostName]HostStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alive, statuses = make(map[model.HostName]bool, len(w.registered)), make(map[model.HostName]HostStatus, len(w.statuses))
	for _, name := range w.registered {
		alive[name] = true
	}
	if len(w.masters) <= 1 { // see Heartbeats.silent
		for _, name := range w.kept {
			if w.hosts.heartbeats.quiet(name) {
				delete(alive, name)
			}
		}
	}
	for _, st := range w.statuses {
		statuses[st.Host] = st
	}
	return alive, statuses
}

// Heard is when a host's last status came here, which no clock of a host can change.
type Heard struct {
	At     time.Time
	Listed bool   // it was there when this watch began, or went on: it is older than At
	word   string // HostStatus.Updated
}

// Heard returns that for all hosts.
func (w *HostWatch) Heard() map[string]Heard {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]Heard, len(w.heard))
	for key, h := range w.heard {
		out[string(w.statuses[key].Host)] = h
	}
	return out
}

// Tell reports, for the leader, when a host goes away, when it is back, and when it has
// rolled back a change by itself, each once, until ctx ends. It begins after
// cluster.ServiceTTL: agents may have to register again when the store was away, or
// everything starts at once.
func (w *HostWatch) Tell(ctx context.Context) {
	if waiting.Pause(ctx, cluster.ServiceTTL) != nil {
		return
	}
	t := teller{w, map[model.HostName]bool{}, map[model.HostName]string{}}
	for {
		changed := w.changes.Next()
		t.tell(w.Seen())
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
