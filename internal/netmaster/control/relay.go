package control

import (
	"context"
	"io"

	"github.com/contiv/netplugin/v2/internal/store/relay"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// relayed is what is handed on to agents: less than what the store lets a host read.
var relayed = tables.Relayed()

// Relay answers one agent that mirrors the cluster's state from this netmaster, as
// relay.Hub's Serve says; the actor is that agent.
func (c *Controller) Relay(ctx context.Context, a Actor, asks io.Reader, stop func(), send func([]byte) error) error {
	return c.relay.Serve(ctx, string(a.host), asks, stop, send)
}

// Relayed tells for how many agents this netmaster relays.
func (c *Controller) Relayed() relay.Stats { return c.relay.Stats() }
