package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// LeaderKey is the lock of netmaster's leader; its value is the holder's
// IP:port (contract/rest.md, "Keys in the cluster store").
const LeaderKey = store.Root + "lock/netmaster/leader"

// LeaderTTL is how long the lock of a leader that died stays its own at most: the
// next one begins within 5 s, the half second in which etcd looks for leases that
// have ended included. It is refreshed each third of that time.
const LeaderTTL = 4 * time.Second

// MemberTTL is LeaderTTL where netmasters keep the store by themselves: a leader that
// dies there may take the store's leader with it, for which the others need up to 1.5 s,
// and who leads the store then lets all leases last for 0.7 s more than they would.
const MemberTTL = 2 * time.Second

// Candidate takes part in an election.
type Candidate struct {
	Store store.Store
	Key   string        // of the lock: LeaderKey
	Value string        // what the lock holds while we lead: IP:port
	TTL   time.Duration // how long the lock outlives a holder that dies; 0 = LeaderTTL
	// Lead is called with each term won. Its context ends with the term: when the
	// lock or the session is lost, or the candidate's context ends. A term also
	// ends when Lead returns nil; then the candidate stands again. An error from
	// Lead while its context still lasts ends the candidacy.
	Lead func(ctx context.Context, term store.Fence) error
	// OnError gets errors of the store; the candidate goes on. Optional.
	OnError func(error)
}

// Run campaigns again and again until ctx ends. It returns ctx's error or Lead's, and
// releases the lock before it returns.
func (c Candidate) Run(ctx context.Context) error {
	if c.TTL <= 0 {
		c.TTL = LeaderTTL
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	lock := &lockView{changed: make(chan struct{})}
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := c.Store.Mirror(ctx, []string{c.Key}, lock.apply); ctx.Err() == nil {
			cancel(err)
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	// Soon, since the agents and the other netmasters wait for a leader.
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: time.Millisecond, Max: 64 * time.Millisecond, Jitter: 0.8})
	for {
		err := c.candidacy(ctx, lock, retry.Reset)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, new(leadError)):
			return errors.Unwrap(err)
		case err != nil:
			c.OnError(err)
		}
		if err := retry.Pause(ctx); err != nil {
			return context.Cause(ctx)
		}
	}
}

// leadError is what Lead returned.
type leadError struct{ error }

func (e leadError) Unwrap() error { return e.error }

// candidacy stands for election with one session; it returns when the session
// is lost or a term ended.
func (c Candidate) candidacy(ctx context.Context, lock *lockView, began func()) error {
	session, err := c.Store.NewSession(ctx, c.TTL)
	if err != nil {
		return fmt.Errorf("campaign for leader: %w", err)
	}
	defer func() {
		if err := session.Close(); err != nil {
			c.OnError(fmt.Errorf("give up leadership: %w", err))
		}
	}()
	began()
	for {
		if err := lock.wait(ctx, session, func(_ store.Revision, kv store.KV) bool { return !kv.Exists() }); err != nil {
			return err
		}
		rev, err := c.Store.Update(ctx, func(tx store.Tx) error {
			return tx.Create(c.Key, []byte(c.Value), session)
		})
		switch {
		case err == nil:
			return c.term(ctx, lock, session, store.Fence{Key: c.Key, Create: rev})
		case !errors.Is(err, model.ErrExists):
			return fmt.Errorf("campaign for leader: %w", err)
		}
		// Another candidate was faster: let the view catch up before trying again.
		if err := waiting.Pause(ctx, 4*time.Millisecond); err != nil {
			return err
		}
	}
}

func (c Candidate) term(ctx context.Context, lock *lockView, session store.Session, term store.Fence) error {
	lctx, end := context.WithCancel(ctx)
	defer end()
	var guard sync.WaitGroup
	guard.Go(func() {
		defer end()
		_ = lock.wait(lctx, session, func(seen store.Revision, kv store.KV) bool {
			// What the view has not seen yet is no loss.
			return seen >= term.Create && kv.Create != term.Create
		})
	})
	err := c.Lead(lctx, term)
	lost := lctx.Err() != nil
	end()
	guard.Wait()
	if err != nil && !lost {
		return leadError{err}
	}
	return nil
}

// lockView is the lock as the mirror sees it.
type lockView struct {
	mu      sync.Mutex
	rev     store.Revision
	kv      store.KV
	changed chan struct{}
}

func (l *lockView) apply(b store.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range b.Events {
		l.kv = e.KV
	}
	l.rev = b.Revision
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

// wait returns nil when the lock is as wanted, and an error when the context or
// the session ends.
func (l *lockView) wait(ctx context.Context, s store.Session, wanted func(store.Revision, store.KV) bool) error {
	for {
		l.mu.Lock()
		rev, kv, changed := l.rev, l.kv, l.changed
		l.mu.Unlock()
		if rev > 0 && wanted(rev, kv) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Done():
			return store.ErrSessionLost
		case <-changed:
		}
	}
}

// Leader returns the value of a lock, or model.ErrUnavailable when there is no leader.
func Leader(ctx context.Context, st store.Reader, key string) (string, error) {
	kv, err := st.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if !kv.Exists() {
		return "", model.Errorf(model.ErrUnavailable, "no leader is elected now")
	}
	return string(kv.Value), nil
}
