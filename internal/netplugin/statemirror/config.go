package statemirror

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Config is what a State needs; all of it, unless it says otherwise.
type Config struct {
	Host        model.HostName
	Control     netip.Addr // with VTEP, what the record of this host is to say; optional
	VTEP        netip.Addr
	Store       store.Mirrorer
	Log         *slog.Logger
	StateDir    string               // remembers which store is followed
	HostChanges *hostchanges.History // of this host's own networking; nil = none are noted
	Grace       time.Duration        // how long others may take to put back what a restored store lacks; 0 = StoreGrace

	SinceBoot func() time.Duration // nil = the kernel's
	Boot      string               // which run of the kernel that counts from; empty = the present one
	Patience  time.Duration        // how long the store may take to be read before CheckpointFile has to do; 0 = RestoreAfter

	Agent Agent
}

// Agent is what the State needs of the agent, and reports to it. Its methods are also called
// with the State locked: they must not ask it anything.
type Agent interface {
	Kick(reason string) // requests a sync
	Soon(reason string) // likewise, for what is not urgent
	Own() []Attachment  // the attachments that stand

	OnOwnHost()          // the record of this host has changed
	OnInfra()            // a tenant's infra networks have changed
	OnLost()             // an endpoint of this host has been deleted
	OnFreeze(why string) // the desired state is frozen; "" = the store is followed
}

// withDefaults returns the Config with its optional values set.
func (cfg Config) withDefaults() Config {
	if cfg.Grace == 0 {
		cfg.Grace = StoreGrace
	}
	if cfg.Patience == 0 {
		cfg.Patience = RestoreAfter
	}
	if cfg.SinceBoot == nil {
		cfg.SinceBoot = sinceBoot
	}
	if cfg.Boot == "" {
		cfg.Boot = bootID()
	}
	return cfg
}

// shared is what every part of a State has: the configuration, one lock for a batch that
// changes several parts, and the changes that others wait for. Exported methods of parts
// take the lock. Others are called with it held, unless they say otherwise.
type shared struct {
	Config
	mu      sync.Mutex // guards the mirrors, the guard, endpoints, services, settings, unconfirmed changes and the Compiler
	changes waiting.Changes
}

// wait blocks until ok, called under the lock, reports true or fails, or ctx ends. The
// caller does not hold the lock.
func (c *shared) wait(ctx context.Context, ok func() (bool, error)) error {
	return c.changes.Until(ctx, func() (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	})
}
