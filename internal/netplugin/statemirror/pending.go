package statemirror

import (
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// An endpoint and the record of its identity come by two mirrors, in any order. Without
// the record no rule allows the identity, so an endpoint's row counts only once the
// record is there: until then the endpoint stays as it was.

// identityGrace is how long an endpoint waits for the record of its identity. One that
// is missing for longer is damage, which is reported as such.
const identityGrace = 2 * time.Second

type pendingEndpoint struct {
	endpoint model.Endpoint
	since    time.Time
}

// setEndpointLocked hands an endpoint to the Compiler, now or when its identity is known.
func (c *State) setEndpointLocked(e model.Endpoint) {
	c.reopenLocked(e.IPv4, e.IPv6)
	if c.hasIdentityLocked(e) {
		delete(c.pending, e.Key)
		c.comp.SetEndpoint(e)
		return
	}
	c.pending[e.Key] = pendingEndpoint{e, time.Now()}
}

func (c *State) hasIdentityLocked(e model.Endpoint) bool {
	return e.Identity < model.IdentityFirst || e.Identity > model.IdentityLast || c.comp.Identities.Knows(e.Key.Network.Tenant, e.Identity)
}

func (c *State) removeEndpointLocked(k model.EndpointKey) {
	delete(c.pending, k)
	c.comp.DeleteEndpoint(k)
}

// releaseEndpointsLocked hands over the endpoints whose identities have become known.
func (c *State) releaseEndpointsLocked() {
	if !c.newIdentity {
		return
	}
	c.newIdentity = false
	for _, p := range c.pending {
		if c.hasIdentityLocked(p.endpoint) {
			c.setEndpointLocked(p.endpoint)
		}
	}
}

// giveUpIdentitiesLocked hands over the endpoints that have waited for so long.
func (c *State) giveUpIdentitiesLocked(grace time.Duration) {
	for k, p := range c.pending {
		if time.Since(p.since) >= grace {
			delete(c.pending, k)
			c.comp.SetEndpoint(p.endpoint)
			c.Soon("an identity without a record")
		}
	}
}
