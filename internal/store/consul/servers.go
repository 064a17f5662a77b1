package consul

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// askTimeout bounds the question to one agent.
const askTimeout = 2 * time.Second

var _ store.Inspectable = (*Client)(nil)

// Servers implements store.Inspectable: it asks each endpoint who leads, and its
// version if the token may know. Consul tells neither size nor quota.
func (c *Client) Servers(ctx context.Context) []store.Server {
	out := make([]store.Server, len(c.clients))
	var asking sync.WaitGroup
	for i, a := range c.clients {
		asking.Go(func() { out[i] = c.server(ctx, a, c.urls[i]) })
	}
	asking.Wait()
	return out
}

func (c *Client) server(ctx context.Context, a *api.Client, at string) store.Server {
	s := store.Server{Address: at}
	rctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	q := new(api.QueryOptions).WithContext(rctx)
	begin := time.Now()
	leader, err := a.Status().LeaderWithQueryOptions(q)
	s.Took = time.Since(begin)
	switch {
	case err != nil:
		s.Err = c.failed(ctx, err)
		return s
	case leader == "":
		s.Alarms = []string{model.AlarmNoLeader}
	}
	if c.denied.Load() {
		s.Alarms = append(s.Alarms, model.AlarmDenied)
	}
	var self struct {
		Config struct{ Version string }
		Stats  struct{ Consul map[string]string }
	}
	if _, err := a.Raw().Query("/v1/agent/self", &self, q); err == nil {
		s.Version, s.Leads = self.Config.Version, self.Stats.Consul["leader"] == "true"
	}
	return s
}

// identify asks all endpoints which store they have: Consul has no id of its cluster.
func (c *Client) identify(ctx context.Context, _ bool) []store.EndpointReport {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	all := make([]store.EndpointReport, len(c.clients))
	var asking sync.WaitGroup
	for i, a := range c.clients {
		asking.Go(func() {
			key := consulKey(store.StoreIdentityKey)
			p, _, err := a.KV().Get(key, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
			if err != nil {
				return
			}
			v := view{}
			if p != nil {
				v.pairs = map[string]*api.KVPair{key: p}
			}
			all[i] = store.EndpointReport{Endpoint: c.urls[i], Read: true, Identity: v.kv(key)}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(all, func(t store.EndpointReport) bool { return !t.Read })
}

// Addresses are where Consul answers, as host:port, sorted: the endpoints that the
// client was given, and where its servers speak with each other. When these cannot
// be asked, the endpoints come with the error.
func (c *Client) Addresses(ctx context.Context) ([]string, error) {
	var all []string
	for _, text := range c.urls {
		if u, err := url.Parse(text); err == nil {
			all = append(all, u.Host)
		}
	}
	peers, err := ask(ctx, c, c.timeout, func(ctx context.Context, a *api.Client) ([]string, error) {
		return a.Status().PeersWithQueryOptions(new(api.QueryOptions).WithContext(ctx))
	})
	if err != nil {
		err = fmt.Errorf("list the servers of Consul: %w", err)
	}
	all = append(all, peers...)
	slices.Sort(all)
	return slices.Compact(all), err
}
