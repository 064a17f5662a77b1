package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// askTimeout bounds the question to one server.
const askTimeout = 2 * time.Second

var _ store.Inspectable = (*Client)(nil)

// Servers implements store.Inspectable. Servers before 3.6 do not tell their
// quota.
func (c *Client) Servers(ctx context.Context) []store.Server {
	endpoints := c.health.allEndpoints()
	if len(endpoints) == 0 { // the embedded one, which is asked without a connection
		endpoints = []string{""}
	}
	out := make([]store.Server, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() { out[i] = c.ask(ctx, endpoint) })
	}
	asking.Wait()
	return out
}

func (c *Client) ask(ctx context.Context, endpoint string) store.Server {
	s := store.Server{Address: endpoint}
	if endpoint == "" {
		s.Address = c.endpoints
	}
	rctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	begin := time.Now()
	answer, err := c.etcd.Status(rctx, endpoint)
	s.Took = time.Since(begin)
	if err != nil {
		s.Err = c.failed(ctx, err)
		return s
	}
	s.Version, s.Size, s.Quota, s.Alarms = answer.Version, answer.DbSize, answer.DbSizeQuota, answer.Errors
	if c.denied.Load() {
		s.Alarms = append(s.Alarms, store.Denied)
	}
	s.Leads = answer.Header.MemberId == answer.Leader
	return s
}
