package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/relay"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Options adjust a Controller; the zero value is good.
type Options struct {
	// Log receives what no caller can be told; nil discards it.
	Log *slog.Logger
	// Initial is what a new cluster's settings have instead of the defaults; zero
	// fields mean the default. It changes nothing on a cluster that exists.
	Initial model.Valid[model.Global]
	// Now is the clock of reservations; nil = time.Now.
	Now func() time.Time
	// ReservationTTL is how long an address is kept for an endpoint that does not
	// come; 0 = 24 hours.
	ReservationTTL time.Duration
	// RelayBeat is how often relayed hosts get a message that they are up to date; 0 =
	// relay.Beat.
	RelayBeat time.Duration

	// Surroundings are what this machine needs to reach others, netmasters among them, such
	// as its gateways, and what it is in words: no network that hosts have a route to may hold it. nil = nothing.
	Surroundings func(to []netip.Addr) model.Lifelines

	uptime func() time.Duration // a monotonic clock; nil = Now's
}

// Controller makes the use-cases, which are methods of its fields by subject, all over
// one Committer, and runs what they need. Any number of controllers may work on one store
// at once. Any goroutine may call the use-cases while Run runs; they wait for its first
// snapshot. Their errors are of model's kinds.
type Controller struct {
	*Committer

	Addresses    *Addresses
	Analysis     *analysis.Engine
	L2Announcers *L2Announcers
	Endpoints    *Endpoints
	Heartbeats   *liveness.Heartbeats
	HostLeases   *HostLeases
	Hosts        *Hosts
	Kubernetes   *Kubernetes
	LabelFilter  *LabelFilter
	Networks     *Networks
	Ownership    *Ownership
	Pending      *Pending
	Policies     *Policies
	Repair       *Repair
	Services     *Services
	Settings     *Settings
	Store        *StoreIdentity
	Tenants      *Tenants

	relay *relay.Hub
}

// New returns a Controller on a store that somebody else closes. It does
// nothing until Run.
func New(st store.Store, opts Options) *Controller {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.ReservationTTL == 0 {
		opts.ReservationTTL = 24 * time.Hour
	}
	m := newCommitter(st, opts)
	v := m.view
	c := &Controller{
		Committer:    m,
		Addresses:    &Addresses{commits: m, networkView: v.Networks, addressView: v.Addresses, reservationTTL: opts.ReservationTTL},
		L2Announcers: &L2Announcers{commits: m, hostView: v.Hosts, ownerView: v.AddressOwners},
		Heartbeats:   liveness.NewHeartbeats(st),
		Kubernetes:   &Kubernetes{commits: m, ownerView: v.AddressOwners, kubernetesView: v.Kubernetes},
		LabelFilter:  &LabelFilter{commits: m, endpointView: v.Endpoints, settingsView: v.Settings},
		Pending:      &Pending{commits: m, pendingView: v.Pending},
		Policies:     &Policies{commits: m, endpointView: v.Endpoints, policyView: v.Policies},
		Services:     &Services{commits: m, serviceView: v.Services},
		Store:        &StoreIdentity{commits: m, initial: opts.Initial.Value(), renew: waiting.NewBell()},
		Tenants:      &Tenants{commits: m, addressView: v.Addresses, tenantView: v.Tenants},
	}
	c.Endpoints = &Endpoints{commits: m, settingsView: v.Settings, networkView: v.Networks, endpointView: v.Endpoints, addressView: v.Addresses, podView: v.Pods, addresses: c.Addresses}
	c.Networks = &Networks{commits: m, networkView: v.Networks, endpointView: v.Endpoints, hostView: v.Hosts, ownerView: v.AddressOwners, endpoints: c.Endpoints, surroundings: opts.Surroundings}
	c.Settings = &Settings{commits: m, settingsView: v.Settings, filter: c.LabelFilter, networks: c.Networks}
	c.Hosts = &Hosts{commits: m, hostView: v.Hosts, endpointView: v.Endpoints, heartbeats: c.Heartbeats, endpoints: c.Endpoints}
	c.HostLeases = &HostLeases{commits: m, hostView: v.Hosts, ownerView: v.AddressOwners, networkView: v.Networks, heartbeats: c.Heartbeats, hosts: c.Hosts}
	c.Ownership = &Ownership{commits: m, networks: c.Networks}
	c.Repair = &Repair{commits: m, addressView: v.Addresses, policies: c.Policies, services: c.Services}
	c.follow = store.NewFollower(st, append([]string{tables.StatePrefix}, tables.Registered...), c.apply, store.Since(c.Store.identities.since))
	c.follow.Ranges(tables.PendingScope) // which every write of what may be locked looks at
	c.Analysis = analysis.New(c.follow, opts.Log)
	c.analysis = c.Analysis
	c.relay = relay.NewHub(c.follow, relayed, v.HostRows, opts.RelayBeat)
	return c
}

// Run creates what a fresh cluster must have and follows the store, until ctx
// ends; then it returns nil.
func (c *Controller) Run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.follow.Run(gctx) })
	g.Go(func() error {
		c.relay.Run(gctx)
		return nil
	})
	g.Go(func() error {
		for waiting.Pause(gctx, rowsGrace/10) == nil {
			c.view.HostRows.expire()
			c.relay.Regrade(c.view.HostRows.takeChanged())
		}
		return nil
	})
	g.Go(func() error {
		if err := c.Store.prepare(gctx); err != nil {
			return err
		}
		return c.Store.renewEmpty(gctx)
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch the store: %w", err)
	}
	return nil
}

// apply enters a batch into the view and hands it on.
func (c *Controller) apply(b store.Batch) error {
	if err := c.view.apply(b); err != nil {
		return err
	}
	c.Analysis.Apply(b)
	c.relay.Apply(b, c.view.HostRows.takeChanged())
	c.Store.trackStore(b)
	return nil
}
