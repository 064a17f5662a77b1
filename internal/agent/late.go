package agent

import (
	"context"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// What this process asked netmaster for and gave up may come late: a
// createEndpoint that timed out here can commit after its deletion was answered
// with "there is none". Nobody else knows of such an endpoint, so it is
// released by who asked for it.

// lateGrace is how long an endpoint that no attachment needs any more may stay
// in the mirror, whose news of its deletion is on its way.
const lateGrace = 2 * masterTimeout

// forget says that no attachment needs a hidden endpoint any more. It stays
// hidden for a while, and for as long as it is in the mirror.
func (c *clusterView) forget(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, hidden := c.hidden[k]; hidden {
		c.hidden[k] = time.Now()
	}
}

// dropForgotten lets go of what was forgotten and has not appeared since.
func (c *clusterView) dropForgotten(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, since := range c.hidden {
		if m := c.mirrors[k.Network.Tenant]; m != nil && m.ready {
			if _, there := m.endpoints[k]; there {
				continue
			}
		}
		if !since.IsZero() && now.Sub(since) >= max(linger, 2*lateGrace) {
			delete(c.hidden, k)
		}
	}
}

// late returns endpoints in the mirror that were forgotten a while ago.
func (c *clusterView) late(now time.Time, grace time.Duration) []model.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []model.Endpoint
	for k, since := range c.hidden {
		m := c.mirrors[k.Network.Tenant]
		if since.IsZero() || now.Sub(since) < grace || m == nil {
			continue
		}
		if e, there := m.endpoints[k]; there {
			out = append(out, e)
		}
	}
	return out
}

// releaseLate releases endpoints that came after they were given up. It needs
// no proof that they are this host's: this process asked for each of them.
func (a *Agent) releaseLate(ctx context.Context, grace time.Duration) {
	for _, e := range a.cluster.late(time.Now(), grace) {
		if err := a.releaseLateOne(ctx, e); err != nil {
			a.log.Debug("an endpoint that came late is not released yet", "endpoint", e.Key.String(), "error", err)
			return
		}
	}
}

func (a *Agent) releaseLateOne(ctx context.Context, e model.Endpoint) error {
	if k, ok := attachmentOf(a.cfg.Host, e.Key.ID); ok { // it may be attached anew just now
		unlock, err := a.turns.Take(ctx, k)
		if err != nil {
			return err
		}
		defer unlock()
	}
	for _, known := range a.journal.all() {
		if known.Endpoint == e.Key {
			return nil
		}
	}
	a.log.Info("releasing an endpoint that netmaster made after the attachment was given up", "endpoint", e.Key.String())
	return a.masters.delete(ctx, e.Key, e.Group)
}
