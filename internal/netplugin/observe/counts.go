package observe

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// deliverCounts tells a netmaster what this host counts of a service, by provider,
// and that this is all.
func (a *Observer) deliverCounts(ctx context.Context, client *api.Client, r cluster.MonitorRequest) {
	for ctx.Err() == nil {
		err := client.DeliverFlows(ctx, r.ID, string(a.cfg.Host), queued(a.counts(ctx, r.Counts)))
		if err == nil || api.IsNotFound(err) {
			return
		}
		if ctx.Err() == nil {
			a.cfg.Log.Debug("counts cannot be delivered", "netmaster", r.Address, "error", err)
		}
		_ = waiting.Pause(ctx, deliverRetry) // the loop sees the end
	}
}

// queued is a stream of just these events.
func queued(events []api.FlowEvent) <-chan api.FlowEvent {
	out := make(chan api.FlowEvent, len(events))
	for _, e := range events {
		out <- e
	}
	close(out)
	return out
}

// counts are the events that tell what is counted of a service.
func (a *Observer) counts(ctx context.Context, service string) (out []api.FlowEvent) {
	last := api.FlowEvent{Time: time.Now(), Event: api.FlowCounted}
	if !a.cfg.Can.ServiceStats {
		last.Text = "its data plane (" + a.cfg.DriverName + ") does not count"
		return []api.FlowEvent{last}
	}
	s, err := a.cfg.Driver.Stats(ctx)
	if err != nil {
		last.Text = err.Error()
		return []api.FlowEvent{last}
	}
	sums := map[model.EndpointKey]*api.Served{}
	for of, n := range s.Services {
		if of.Service.String() != service {
			continue
		}
		if sums[of.Backend] == nil {
			sums[of.Backend] = &api.Served{}
		}
		sums[of.Backend].Add(api.Served(n))
	}
	last.Text = s.ConnectionsUnknown
	for k, why := range s.Uncounted {
		if k.String() == service {
			last.Text = why
		}
	}
	for k, n := range sums {
		out = append(out, api.FlowEvent{Time: last.Time, Event: api.FlowCounts, To: api.FlowPeer{Endpoint: k.String()}, Served: n})
	}
	return append(out, last)
}
