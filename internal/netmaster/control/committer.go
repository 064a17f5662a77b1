package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/netmaster/analysis"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Committer commits the transactions of all use-cases to one store, and has the view of
// what is committed. It decides nothing by itself. Any goroutine may call it while
// Controller.Run runs; calls wait for the view's first snapshot.
type Committer struct {
	store    store.Store
	log      *slog.Logger
	analysis *analysis.Engine // by which assertions are checked
	now      func() time.Time // of reservations and of changes that wait to be confirmed
	view     *View
	follow   *store.Follower
	turns    waiting.KeyedLocks[string] // by row: they save conflicts within this process; the store keeps things right without
	ready    chan struct{}              // closed when the defaults exist and the view is there
}

func newCommitter(st store.Store, opts Options) *Committer {
	c := &Committer{store: st, log: opts.Log, now: opts.Now, view: newView(opts.Log), ready: make(chan struct{})}
	c.view.Addresses.now, c.view.Pending.clock = opts.Now, opts.Now
	uptime := opts.uptime
	if uptime == nil {
		began := opts.Now()
		uptime = func() time.Duration { return opts.Now().Sub(began) }
	}
	c.view.Addresses.expiredReservations = newReservationTimes(opts.ReservationTTL, uptime)
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

// Revision is a revision of the store.
type Revision = store.Revision

// usecase is one use-case under way: who asks for it, what its commits depend on, and the
// last of them. One goroutine has it.
type usecase struct {
	commits  *Committer
	actor    Actor
	only     *Condition     // of the first commit; nil = none
	confirms string         // the unconfirmed change that it makes or confirms; empty = none
	rev      store.Revision // of its last commit; 0 = none
	planned  store.Tx       // in which all of it is tried; nil = it commits
}

// as begins a use-case for an actor.
func (c *Committer) as(a Actor) *usecase { return &usecase{commits: c, actor: a} }

// update makes a use-case of one transaction. what is the verb and object for errors.
func (c *Committer) update(ctx context.Context, a Actor, what string, fn func(store.Tx) error) (store.Revision, error) {
	return c.as(a).update(ctx, what, fn)
}

// update runs a transaction of a use-case.
func (u *usecase) update(ctx context.Context, what string, fn func(store.Tx) error) (store.Revision, error) {
	return u.updateBy(ctx, what, u.commits.follow.Update, fn)
}

func (u *usecase) updateBy(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
	if u.planned != nil {
		return 0, u.tryPlannedTx(what, fn)
	}
	for tries := 0; ; tries++ {
		rev, err := u.updateOnce(ctx, what, update, fn)
		unsettled, ok := errors.AsType[*replacementError](err)
		if !ok || tries == maxSettled {
			return rev, err
		}
		if err := u.commits.settle(ctx, Admin(), unsettled.policy, ""); err != nil {
			return 0, fmt.Errorf("%s: %w", what, err)
		}
	}
}

// updater is how a transaction is made: store.Follower's Update, or UpdateFresh.
type updater func(context.Context, func(store.Tx) error) (store.Revision, error)

// updateOnce is updateBy for who must not end a replacement of rules in its way.
func (u *usecase) updateOnce(ctx context.Context, what string, update updater, fn func(store.Tx) error) (store.Revision, error) {
	if err := u.commits.await(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	try := func() (store.Revision, error) {
		return update(ctx, respectLocks(u.confirms, u.checkAssertions(ctx, func(tx store.Tx) error {
			u.actor.require(tx)
			if u.only != nil {
				if err := u.only.check(tx); err != nil {
					return err
				}
			}
			return fn(tx)
		})))
	}
	rev, err := try()
	for tries := 1; errors.Is(err, analysis.ErrRowsMoved) && tries < maxChecked; tries++ {
		rev, err = try()
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	u.only, u.rev = nil, max(u.rev, rev)
	return rev, nil
}

// maxChecked is how often a transaction is checked while others change the same rows.
const maxChecked = 8

// report runs a transaction of what a host reports. It does not wait for the view, and no
// unconfirmed change is in its way.
func (c *Committer) report(ctx context.Context, a Actor, fn func(store.Tx) error) error {
	_, err := c.store.Update(ctx, func(tx store.Tx) error {
		a.require(tx)
		return fn(tx)
	})
	return err
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
