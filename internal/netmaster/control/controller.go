package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
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
	// RelayBeat is how often hosts that are mirrored are told that they know all; 0 =
	// relay.Beat.
	RelayBeat time.Duration

	// Surroundings are what this machine needs to reach others, such as its gateway, and
	// what it is in words: no network that hosts have a route to may hold it. nil = nothing.
	Surroundings func() map[netip.Addr]string

	uptime func() time.Duration // a clock that nobody sets; nil = that of Now
}

// Controller runs use-cases. Any number may work on one store at once. All
// methods may be called from any goroutine while Run runs; they wait for its
// first snapshot. Their errors are of model's kinds.
type Controller struct {
	store  store.Store
	opts   Options
	log    *slog.Logger
	view   *View
	follow *store.Follower
	turns  waiting.Turns[string] // by row: they save conflicts within this process; the store keeps things right without
	ready  chan struct{}         // closed when the defaults exist and the view is there

	identities identities
	hearing    hearing // which agents live
	answers    answerHearing
	signs      signBatches
	born       time.Time    // since when it can hear them
	renew      waiting.Bell // the store has lost its identity
	stalled    stalled
	relay      *relay.Hub
	overQuota  atomic.Uint64 // requests of hosts that have reserved too many addresses
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
	c := &Controller{born: time.Now(), store: st, opts: opts, log: opts.Log, view: newView(opts.Log), ready: make(chan struct{}), renew: waiting.NewBell()}
	c.view.now = opts.Now
	if opts.uptime == nil {
		began := opts.Now()
		opts.uptime = func() time.Duration { return opts.Now().Sub(began) }
	}
	c.view.kept = newKeepings(opts.ReservationTTL, opts.uptime)
	c.follow = store.NewFollower(st, []string{tables.StatePrefix}, c.apply, store.Since(c.identities.since))
	c.follow.Ranges(tables.PendingScope) // which every write of what may be locked looks at
	c.relay = relay.NewHub(c.follow, relayed, opts.RelayBeat)
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
		if err := c.prepare(gctx); err != nil {
			return err
		}
		return c.renewEmpty(gctx)
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow the store: %w", err)
	}
	return nil
}

// prepare creates the store's identity, the settings and the default tenant
// unless they are there, trying again while the store is away, and then lets use-cases begin.
func (c *Controller) prepare(ctx context.Context) error {
	if err := c.untilDone(ctx, c.createDefaults); err != nil {
		return err
	}
	close(c.ready)
	return nil
}

// untilDone runs a transaction, again while the store is away, and waits until
// the view has it.
func (c *Controller) untilDone(ctx context.Context, fn func(store.Tx) error) error {
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 50 * time.Millisecond, Max: 2 * time.Second})
	for told := false; ; {
		rev, err := c.store.Update(ctx, fn)
		if err == nil {
			err = c.follow.WaitFor(ctx, rev)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !errors.Is(err, model.ErrUnavailable) && !errors.Is(err, model.ErrConflict):
			return fmt.Errorf("create the defaults: %w", err)
		case !told:
			c.log.Warn("waiting for the store", "error", err)
			told = true
		}
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// createDefaults never changes what is there: a restart must not reset the
// settings (known fault 6).
func (c *Controller) createDefaults(tx store.Tx) error {
	if err := tx.Prefetch(tables.Globals.Key(tables.GlobalKey{}), tables.Tenants.Key(model.DefaultTenant), store.StoreIdentityKey); err != nil {
		return err
	}
	if err := c.identifyStore(tx); err != nil {
		return err
	}
	g, err := tables.Globals.Find(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	if !g.Exists() {
		if err := tables.Globals.Create(tx, model.DefaultGlobal().Merge(c.opts.Initial.Value())); err != nil {
			return err
		}
	}
	t, err := tables.Tenants.Find(tx, model.DefaultTenant)
	if err != nil || t.Exists() {
		return err
	}
	return tables.Tenants.Create(tx, model.Tenant{Name: model.DefaultTenant})
}

// await waits until use-cases may begin.
func (c *Controller) await(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	default:
	}
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		if err := c.follow.State(); err != nil {
			return err
		}
		return ctx.Err()
	}
}

// update runs a use-case's transaction. what is the verb and object for errors.
func (c *Controller) update(ctx context.Context, what string, fn func(store.Tx) error) (store.Revision, error) {
	return c.updateBy(ctx, what, c.follow.Update, fn)
}

func (c *Controller) updateBy(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
	update = underCondition(ctx, update)
	for tries := 0; ; tries++ {
		rev, err := c.updateOnce(ctx, what, update, fn)
		unsettled, ok := errors.AsType[*unsettledError](err)
		if !ok || tries == maxSettled {
			return rev, err
		}
		if err := c.settle(ctx, nil, unsettled.policy, ""); err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
	}
}

// updater is how a transaction is made: store.Follower's Update, or UpdateFresh.
type updater func(context.Context, func(store.Tx) error) (store.Revision, error)

// updateOnce is updateBy for who must not end a replacement of rules in its way.
func (c *Controller) updateOnce(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
	if err := c.await(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	rev, err := update(ctx, heedingLocks(ctx, fn))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if note, ok := ctx.Value(notes{}).(*store.Revision); ok {
		*note = max(*note, rev)
	}
	return rev, nil
}

type notes struct{}

// NoteRevision returns a context for one request's use-cases, and where they
// note the revision of their last commit: 0 until there is one. It is for
// answers of any kind of write; read it when the use-cases have returned.
func NoteRevision(ctx context.Context) (context.Context, *store.Revision) {
	note := new(store.Revision)
	return context.WithValue(ctx, notes{}, note), note
}

// View returns the view, fresh: it holds every commit made before the call.
func (c *Controller) View(ctx context.Context) (*View, error) {
	if err := c.await(ctx); err != nil {
		return nil, err
	}
	if _, err := c.follow.Fresh(ctx); err != nil {
		return nil, err
	}
	return c.view, nil
}

// Current returns the view as it is, without asking the store; it is empty
// before the first snapshot.
func (c *Controller) Current() *View { return c.view }

// IntentChanged returns what is closed when the view gets other settings of the
// cluster, or a tenant comes, changes or goes.
func (c *Controller) IntentChanged() <-chan struct{} { return c.view.intent.Next() }

// WaitFor returns when the view holds the commit of a revision.
func (c *Controller) WaitFor(ctx context.Context, rev store.Revision) error {
	return c.follow.WaitFor(ctx, rev)
}

// Health returns nil while the view follows the store, else why it does not.
func (c *Controller) Health() error { return c.follow.State() }
