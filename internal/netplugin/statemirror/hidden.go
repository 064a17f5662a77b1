package statemirror

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// LateGrace is how long an endpoint that no attachment needs any more may stay in
// the mirror: the news of its deletion may be on its way.
const LateGrace = 20 * time.Second

// Hide keeps a local endpoint out of the picture: it is not plumbed yet, or not any
// more, whatever the store says. Reveal undoes it.
func (c *State) Hide(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden[k] = time.Time{}
	if m := c.endpointsLocked(k.Network); m != nil {
		if _, ok := m.endpoints[k]; ok {
			c.removeEndpointLocked(k)
		}
	}
}

// Reveal ends a Hide: the endpoint is in the picture again as the store has it.
func (c *State) Reveal(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.hidden, k)
	if m := c.endpointsLocked(k.Network); m != nil {
		if e, ok := m.endpoints[k]; ok {
			c.setEndpointLocked(e)
		}
	}
}

// Forget says that no attachment needs a hidden endpoint any more. It stays
// hidden for a while, and for as long as it is in the mirror.
func (c *State) Forget(k model.EndpointKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, hidden := c.hidden[k]; hidden {
		c.hidden[k] = time.Now()
	}
}

// dropForgotten drops the endpoints that were forgotten a while ago and are not in
// the mirror.
func (c *State) dropForgotten(now time.Time, linger time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, since := range c.hidden {
		if m := c.endpointsLocked(k.Network); m != nil && m.ready {
			if _, there := m.endpoints[k]; there {
				continue
			}
		}
		if !since.IsZero() && now.Sub(since) >= max(linger, 2*LateGrace) {
			delete(c.hidden, k)
		}
	}
}

// Orphans returns the endpoints that were forgotten a while ago and are still in the
// mirror.
func (c *State) Orphans(now time.Time, grace time.Duration) []model.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []model.Endpoint
	for k, since := range c.hidden {
		m := c.endpointsLocked(k.Network)
		if since.IsZero() || now.Sub(since) < grace || m == nil {
			continue
		}
		if e, there := m.endpoints[k]; there {
			out = append(out, e)
		}
	}
	return out
}
