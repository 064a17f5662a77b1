package etcd

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
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
	s.Version, s.Size, s.Quota = answer.Version, answer.DbSize, answer.DbSizeQuota
	for _, text := range answer.Errors { // of each member that has raised one
		if a := alarm(text, endpoint == ""); !slices.Contains(s.Alarms, a) {
			s.Alarms = append(s.Alarms, a)
		}
	}
	if c.denied.Load() {
		s.Alarms = append(s.Alarms, model.AlarmDenied)
	}
	s.Leads = answer.Header.MemberId == answer.Leader
	return s
}

// alarm says in plain words what etcd's status has as an error, such as "memberID:1 alarm:NOSPACE ".
func alarm(text string, embedded bool) string {
	switch {
	case strings.Contains(text, "NOSPACE") && embedded:
		return model.AlarmEmbeddedFull
	case strings.Contains(text, "NOSPACE"):
		return model.AlarmFull
	case strings.Contains(text, "CORRUPT"):
		return model.AlarmCorrupt
	case strings.Contains(text, "no leader"):
		return model.AlarmNoLeader
	}
	return strings.TrimSpace(text)
}
