package observe

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// maxDeliveries bounds how many monitors of netmasters this host serves at once.
const maxDeliveries = 16

// deliverRetry is how long a netmaster that cannot be reached is left alone.
const deliverRetry = time.Second

// serveMonitors follows the monitors that netmasters have entered in the store,
// and sends them this host's events: the agent calls, so it opens no port.
func (a *Observer) serveMonitors(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	active := map[string]context.CancelFunc{}
	err := cluster.WatchMonitors(ctx, a.cfg.Store, func(list []cluster.MonitorRequest) error {
		wanted := map[string]bool{}
		for _, r := range list {
			others := r.Trace != nil && !slices.Contains(r.Trace.Hosts, a.cfg.Host)
			if r.Host != "" && r.Host != a.cfg.Host || others || len(wanted) == maxDeliveries {
				continue
			}
			wanted[r.ID] = true
			if active[r.ID] == nil {
				dctx, cancel := context.WithCancel(ctx)
				active[r.ID] = cancel
				running.Go(func() { a.deliver(dctx, r) })
			}
		}
		for id, cancel := range active {
			if !wanted[id] {
				cancel()
				delete(active, id)
			}
		}
		return nil
	})
	for _, cancel := range active {
		cancel()
	}
	if ctx.Err() == nil {
		a.cfg.Log.Error("requests of netmasters for monitors are not watched any more", "error", err)
	}
}

// deliver sends the events that a monitor wants until it is gone or ctx ends.
func (a *Observer) deliver(ctx context.Context, r cluster.MonitorRequest) {
	client, err := a.cfg.Netmasters.Dial(strings.Join(append([]string{r.Address}, a.cfg.Netmasters.FixedBases()...), ","))
	if err != nil {
		a.cfg.Log.Warn("a monitor cannot be served", "netmaster", r.Address, "error", err)
		return
	}
	defer client.Close()
	if r.Report != "" {
		a.deliverReport(ctx, client, r)
		return
	}
	if r.Counts != "" {
		a.deliverCounts(ctx, client, r)
		return
	}
	w := a.watchers.add(r)
	defer a.watchers.remove(w)
	for ctx.Err() == nil {
		err := client.DeliverFlows(ctx, r.ID, string(a.cfg.Host), w.events)
		if api.IsNotFound(err) {
			return
		}
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Debug("events cannot be delivered", "netmaster", r.Address, "error", err)
		}
		_ = waiting.Pause(ctx, deliverRetry) // the loop sees the end
	}
}

// getMonitor streams this host's events, a JSON object a line: GET /monitor,
// with ?drops=true for drops only, and groups in ?from= and ?to=.
func (a *Observer) getMonitor(w http.ResponseWriter, r *http.Request) {
	want, err := watchQuery(r)
	if err != nil {
		failHTTP(w, err)
		return
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // the request has been read
	watcher := a.watchers.add(want)
	defer a.watchers.remove(watcher)
	beat := time.NewTicker(api.MonitorKeepAlive)
	defer beat.Stop()
	w.Header().Set("Content-Type", api.MediaLines)
	for line := []byte("\n"); ; {
		_ = rc.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := w.Write(line); err != nil || rc.Flush() != nil {
			return
		}
		line = []byte("\n")
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
		case e, ok := <-watcher.events:
			if !ok {
				return
			}
			if line, err = json.Marshal(e); err != nil {
				return
			}
			line = append(line, '\n')
		}
	}
}

func watchQuery(r *http.Request) (want cluster.MonitorRequest, err error) {
	want.Connections = true
	for k, v := range r.URL.Query() {
		switch k {
		case "drops":
			drops, err := strconv.ParseBool(v[0])
			if err != nil {
				return want, model.InvalidField("drops", v[0], "must be true or false")
			}
			want.Connections = !drops
		case "from":
			want.FromTenant, want.From = splitGroup(v[0])
		case "to":
			want.ToTenant, want.To = splitGroup(v[0])
		}
	}
	return want, nil
}

func splitGroup(s string) (model.TenantName, model.GroupName) {
	if tenant, name, ok := strings.Cut(s, ":"); ok {
		return model.TenantName(tenant), model.GroupName(name)
	}
	return "", model.GroupName(s)
}
