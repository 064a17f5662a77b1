package apiserver

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// countsAnswer is how long agents may take to tell what they count.
const countsAnswer = 3 * time.Second

// hostCounts is what hosts have told: by host and provider, so that a host which tells
// again after its connection broke counts once.
type hostCounts struct {
	reported map[string]map[string]api.Served
	ended    map[string]string // hosts that have told all; why they count nothing
}

// serviceCounts answers GET /api/v1/serviceLBs/{key}/counts.
func (s *streams) serviceCounts(_ http.ResponseWriter, r *request) (any, error) {
	v, err := s.control.View(r.Context())
	if err != nil {
		return nil, err
	}
	key, err := model.ParseServiceKey(r.PathValue("key"))
	if err != nil {
		return nil, notFound("serviceLB", r.PathValue("key"))
	}
	service, ok := v.Services.Get(key)
	if !ok {
		return nil, notFound("serviceLB", r.PathValue("key"))
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	id := rand.Text()
	stream, err := s.monitors.add(ctx, id, flowScope{})
	if err != nil {
		return nil, err
	}
	defer s.monitors.remove(id)
	m, err := s.control.Hosts.OpenMonitor(ctx, r.actor, control.MonitorRequest{ID: id, Address: s.address, Counts: key})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := m.Close(); err != nil {
			s.log.Warn("a request for counts stays in the store until its lease ends", "error", err)
		}
	}()
	counts := hostCounts{reported: map[string]map[string]api.Served{}, ended: map[string]string{}}
	if err := counts.collect(ctx, stream, m.Hosts); err != nil {
		return nil, err
	}
	return counts.of(endpointsOf(v, service), m.Hosts), nil
}

// endpointsOf are a service's providers, without counts.
func endpointsOf(v *control.View, s model.Service) []api.ProviderCounts {
	out := []api.ProviderCounts{}
	for _, e := range v.Services.Providers(s) {
		o := endpointOper(v, e)
		out = append(out, api.ProviderCounts{Endpoint: e.Key.String(), Container: o.ContainerName, Host: o.HomingHost, Health: o.Health, Draining: o.Draining})
	}
	return out
}

// collect takes what hosts tell, until all have told it or time is over.
func (c *hostCounts) collect(ctx context.Context, stream *monitorStream, hosts []model.HostName) error {
	late := time.After(countsAnswer)
	for len(c.ended) < len(hosts) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return nil
		case <-stream.slow:
			return model.Errorf(model.ErrUnavailable, "counts: hosts send more at once than netmaster accepts; try again")
		case e := <-stream.events:
			switch {
			case e.Event == api.FlowCounted && slices.Contains(hosts, model.HostName(e.Host)):
				c.ended[e.Host] = e.Text
			case e.Event == api.FlowCounts && e.Served != nil:
				if c.reported[e.Host] == nil {
					c.reported[e.Host] = map[string]api.Served{}
				}
				c.reported[e.Host][e.To.Endpoint] = *e.Served
			}
		}
	}
	return nil
}

// of puts together what the hosts have told of these providers. Of a host that has
// not told all, nothing counts: a part would look like the whole.
func (c *hostCounts) of(providers []api.ProviderCounts, hosts []model.HostName) api.ServiceCounts {
	out := api.ServiceCounts{Providers: providers, Uncounted: map[string]string{}}
	for _, h := range hosts {
		if why, ended := c.ended[string(h)]; !ended {
			out.Uncounted[string(h)] = "it does not answer: its netplugin is down, or older than this netmaster"
		} else if why != "" {
			out.Uncounted[string(h)] = why
		}
	}
	total := uint64(0)
	for i := range out.Providers {
		p := &out.Providers[i]
		for host := range c.ended {
			p.Served.Add(c.reported[host][p.Endpoint])
		}
		total += p.Served.Total
	}
	for i := range out.Providers {
		if p := &out.Providers[i]; total > 0 {
			p.Share = float64(p.Served.Total*10000/total) / 10000 // to the hundredth of a percent
		}
	}
	slices.SortFunc(out.Providers, func(a, b api.ProviderCounts) int { return strings.Compare(a.Endpoint, b.Endpoint) })
	return out
}
