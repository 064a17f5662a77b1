package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Committer commits the transactions of all use-cases to one store, and has the view of
// what is committed. It decides nothing by itself. Any goroutine may call it while
// Controller.Run runs; calls wait for the view's first snapshot.
type Committer struct {
	store  store.Store
	log    *slog.Logger
	now    func() time.Time // of reservations and of changes that wait to be confirmed
	view   *View
	follow *store.Follower
	turns  waiting.Turns[string] // by row: they save conflicts within this process; the store keeps things right without
	ready  chan struct{}         // closed when the defaults exist and the view is there
}

func newCommitter(st store.Store, opts Options) *Committer {
	c := &Committer{store: st, log: opts.Log, now: opts.Now, view: newView(opts.Log), ready: make(chan struct{})}
	c.view.Addresses.now, c.view.Pending.clock = opts.Now, opts.Now
	uptime := opts.uptime
	if uptime == nil {
		began := opts.Now()
		uptime = func() time.Duration { return opts.Now().Sub(began) }
	}
	c.view.Addresses.kept = newKeepings(opts.ReservationTTL, uptime)
	return c
}

// await waits until use-cases may begin.
func (c *Committer) await(ctx context.Context) error {
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
func (c *Committer) update(ctx context.Context, what string, fn func(store.Tx) error) (store.Revision, error) {
	return c.updateBy(ctx, what, c.follow.Update, fn)
}

func (c *Committer) updateBy(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
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
func (c *Committer) updateOnce(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
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
func (c *Committer) View(ctx context.Context) (*View, error) {
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
func (c *Committer) Current() *View { return c.view }

// WaitFor returns when the view holds the commit of a revision.
func (c *Committer) WaitFor(ctx context.Context, rev store.Revision) error {
	return c.follow.WaitFor(ctx, rev)
}

// Health returns nil while the view follows the store, else why it does not.
func (c *Committer) Health() error { return c.follow.State() }
