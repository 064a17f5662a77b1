package observe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// watcherQueue is how many events wait for one who watches.
const watcherQueue = 1024

// watchers are all who watch the data plane. While there are none it is not
// monitored.
type watchers struct {
	mu      sync.Mutex
	all     map[*watcher]struct{}
	changes waiting.Changes // somebody comes or goes
	closed  bool
}

// watcher gets the events that concern it, with names.
type watcher struct {
	want      cluster.MonitorRequest
	logs      bool               // it wants the events of rules with log and of audits only
	events    chan api.FlowEvent // closed when the agent stops
	lost      uint64             // events that did not fit into the queue and were not told as lost yet; guarded by watchers.mu
	lostTotal atomic.Uint64      // events lost, here or on their way here, since it began
	losses    waiting.Bell       // rings when it misses some
}

// countUndelivered counts events that the watcher is not told.
func (w *watcher) countUndelivered(n uint64) {
	w.lostTotal.Add(n)
	w.losses.Ring()
}

func newWatchers() *watchers {
	return &watchers{all: map[*watcher]struct{}{}}
}

// add begins to watch; remove ends it.
func (ws *watchers) add(want cluster.MonitorRequest) *watcher {
	return ws.enter(&watcher{want: want})
}

func (ws *watchers) enter(w *watcher) *watcher {
	w.events, w.losses = make(chan api.FlowEvent, watcherQueue), waiting.NewBell()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		close(w.events)
		return w
	}
	ws.all[w] = struct{}{}
	ws.changes.Notify()
	return w
}

func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.all[w]; ok {
		delete(ws.all, w)
		ws.changes.Notify()
	}
}

func (ws *watchers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	for w := range ws.all {
		close(w.events)
	}
	clear(ws.all)
}

// wants is what all watchers together want of the driver.
func (ws *watchers) wants() (any bool, opts driver.MonitorOptions, changed <-chan struct{}) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	opts.NoDrops = true
	for w := range ws.all {
		opts.Connections = opts.Connections || w.want.Connections
		opts.NoDrops = opts.NoDrops && w.logs
	}
	return len(ws.all) > 0, opts, ws.changes.Next()
}

// publish hands an event to every watcher that wants it, and waits for none.
func (ws *watchers) publish(e api.FlowEvent) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if !w.selects(e) {
			continue
		}
		if e.Event == api.FlowLost {
			w.countUndelivered(e.Count)
		}
		if w.lost > 0 {
			lost := api.FlowEvent{Time: e.Time, Host: e.Host, Event: api.FlowLost, Count: w.lost}
			select {
			case w.events <- lost:
				w.lost = 0
			default:
			}
		}
		select {
		case w.events <- e:
		default:
			w.lost += max(e.Count, 1)
			if e.Event != api.FlowLost {
				w.countUndelivered(max(e.Count, 1))
			}
		}
	}
}

// selects reports whether an event is one that the watcher wants.
func (w *watcher) selects(e api.FlowEvent) bool {
	switch e.Event {
	case api.FlowDrop, api.FlowConnection, api.FlowLogged, api.FlowWouldDeny, api.FlowWouldAllow:
	default:
		return true
	}
	if w.logs {
		return e.Event != api.FlowDrop && e.Event != api.FlowConnection
	}
	want := w.want
	member := func(group string, tenant, name string) bool {
		if name == "" {
			return true
		}
		if tenant == "" && e.Tenant != "" {
			tenant = e.Tenant
		}
		return group == tenant+":"+name
	}
	return (e.Event == api.FlowDrop || want.Connections) &&
		member(e.From.Group, string(want.FromTenant), string(want.From)) &&
		member(e.To.Group, string(want.ToTenant), string(want.To))
}

// monitorRetry is how long a data plane that cannot be monitored is left alone.
const monitorRetry = 5 * time.Second

// monitor keeps the driver monitored while somebody watches, until ctx ends.
func (a *Observer) monitor(ctx context.Context) {
	defer a.watchers.close()
	names := &flowNames{each: a.cfg.Cluster.Lookup.Each, host: string(a.cfg.Host)}
	for ctx.Err() == nil {
		wanted, opts, changed := a.watchers.wants()
		if !wanted {
			names.forget()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := a.monitorOnce(ctx, opts, names)
		if err == nil {
			continue // there is no watcher any more, the monitor is to restart, or ctx has ended
		}
		a.cfg.Log.Warn("the data plane cannot be monitored", "error", err)
		a.flowLog.noteMonitorError(err)
		a.note("the data plane cannot be monitored: " + err.Error())
		select {
		case <-changed:
		case <-time.After(monitorRetry):
		case <-ctx.Done():
		}
	}
}

// note tells all who watch a sentence.
func (a *Observer) note(text string) {
	a.watchers.publish(api.FlowEvent{Time: time.Now(), Host: string(a.cfg.Host), Event: api.FlowNote, Text: text})
}

// monitorOnce passes the driver's events on until there is no watcher, the driver ends
// them, or ctx ends. The requested events change with the watchers.
func (a *Observer) monitorOnce(ctx context.Context, opts driver.MonitorOptions, names *flowNames) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := a.cfg.Driver.Monitor(ctx, opts)
	if err != nil {
		return err
	}
	if a.flowLog.noteMonitorError(nil); a.flowLog != nil {
		a.note("from here on connections are told of")
	}
	for {
		wanted, now, changed := a.watchers.wants()
		if wanted && now != opts && ctx.Err() == nil {
			if err := a.cfg.Driver.ChangeMonitor(ctx, now); err != nil {
				a.cfg.Log.Warn("the monitor is restarted, since its options cannot be changed; some events are missed", "error", err)
				wanted = false
			}
			opts = now
		}
		if !wanted {
			cancel()
			changed = nil // the driver ends the monitor now, and closes events
		}
		select {
		case e, ok := <-events:
			if !ok && ctx.Err() == nil {
				return errors.New("the driver ended it")
			}
			if !ok {
				return nil
			}
			a.watchers.publish(names.resolve(e))
		case <-changed:
		}
	}
}
