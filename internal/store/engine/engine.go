package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Bounds of Update's retries.
const (
	maxAttempts        = 48 // runs of fn that may end in a conflict
	reserveAfter       = 3  // conflicts over one scope before it is claimed
	reservationTTL     = 5 * time.Second
	reservationTimeout = 3 * reservationTTL // longest wait for the claims of others
	firstBackOff       = time.Millisecond
	lastBackOff        = 64 * time.Millisecond
)

// Engine runs Update over a Backend: snapshot reads, optimistic commit,
// retries, fences and claims. It keeps to the backend's Capabilities. Its zero value with Backend set is ready.
type Engine struct{ Backend store.Backend }

// snapshot seeds a transaction with what is known of one revision.
type snapshot struct {
	at  store.Revision
	kvs []store.KV
}

// Update does what Store.Update promises.
func (e Engine) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	return e.UpdateCached(ctx, nil, fn)
}

// UpdateCached is Update, but fn runs first on what near knows, which saves the
// round trip of the reads. What is wrong with that the commit's compares find
// out; a run that ends without a commit (fn failed, or wrote nothing) counts
// for nothing and is done again with reads from the store. So fn may run once
// more, and the guarantees are the same.
func (e Engine) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	return e.UpdateFresh(ctx, near, 0, fn)
}

// UpdateFresh is UpdateCached, but a run that ends without a commit counts too,
// since what near knows is not older than the call.
func (e Engine) UpdateFresh(ctx context.Context, near store.CachedReader, last store.Revision, fn func(store.Tx) error) (store.Revision, error) {
	u := update{Engine: e, retry: newRetry(), cache: near, fresh: last, scopeConflicts: map[string]int{}}
	rev, err := u.run(ctx, fn)
	if len(u.reservations) > 0 {
		u.release(ctx)
	}
	return rev, err
}

// CommitRevision reads the revision of the last commit, linearizably.
func (e Engine) CommitRevision(ctx context.Context) (store.Revision, error) {
	last, _, err := e.Position(ctx)
	return last, err
}

// Position reads the revision of the last commit, and the store's own, which is
// not lower, linearizably.
func (e Engine) Position(ctx context.Context) (last, now store.Revision, err error) {
	kvs, now, err := e.Backend.ReadKeys(ctx, 0, []string{store.CommitKey})
	if err != nil {
		return 0, 0, err
	}
	return kvs[0].Mod, now, nil
}

// update is the state of one call of Update.
type update struct {
	Engine
	cache          store.CachedReader // nil once it has been tried
	fresh          store.Revision     // of the last commit before the call, which near holds; 0 = near may be older
	attempts       int
	retry          *waiting.Retry // after conflicts, but for the first
	scopeConflicts map[string]int
	reservations   map[string]store.Revision // held: scope -> create revision of the claim
	claimed        time.Time
	waited         time.Duration // for the claims of others
}

func (u *update) run(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	var seed snapshot
	caps := u.Backend.Capabilities()
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t := newTxn(ctx, u.Backend, caps, seed, u.attempts == 0)
		t.near, u.cache = u.cache, nil
		err := fn(t)
		switch {
		case t.usedCache && (t.stale || u.fresh == 0 && (err != nil || t.err != nil || t.writesNothing())):
			continue
		case t.err != nil:
			return 0, t.err
		case t.stale:
			// Others wrote while it read, perhaps into what it lists.
			if lost, err := u.countConflicts(ctx, t, func(string) bool { return true }); err != nil {
				return 0, err
			} else if lost {
				seed = snapshot{}
				continue
			}
			if seed, err = u.backOff(ctx, snapshot{}); err != nil {
				return 0, err
			}
			continue
		case err != nil:
			return 0, err
		case t.writesNothing() && t.usedCache:
			return u.fresh, nil
		case t.writesNothing():
			return u.CommitRevision(ctx)
		}
		c, err := t.commit(u.reservations)
		if err != nil {
			return 0, err
		}
		out, err := u.Backend.Commit(ctx, c)
		if err != nil {
			return 0, err
		}
		if out.Committed {
			return out.Revision, nil
		}
		if seed, err = u.conflict(ctx, t, c, out); err != nil {
			return 0, err
		}
	}
}

// conflict finds out why a commit failed and prepares the next run.
func (u *update) conflict(ctx context.Context, t *txn, c store.Commit, out store.Outcome) (snapshot, error) {
	failed := map[string]bool{}
	for i, cmp := range c.Compares {
		if !cmp.Holds(out.Actual[i]) {
			failed[cmp.Key] = true
		}
	}
	for _, f := range t.fences {
		if failed[f.Key] && !f.Holds(actual(c, out, f.Key)) {
			return snapshot{}, store.ErrFenced
		}
	}
	var foreign []string
	for scope := range t.touched {
		if _, own := u.reservations[scope]; !own && failed[reservationKey(scope)] {
			foreign = append(foreign, scope)
		}
	}
	if len(foreign) > 0 {
		// A waiting transaction holds no claims, or two claimants could wait for each
		// other.
		u.release(ctx)
		return snapshot{}, u.await(ctx, foreign)
	}
	claimed, err := u.countConflicts(ctx, t, func(scope string) bool { return failed[genKey(scope)] })
	if claimed || err != nil {
		return snapshot{}, err
	}
	return u.backOff(ctx, snapshot{at: out.Revision, kvs: out.Actual})
}

// countConflicts counts that others were faster in the scopes that t observes and that
// changed, and claims all that it observes when that has happened too often.
func (u *update) countConflicts(ctx context.Context, t *txn, changed func(scope string) bool) (claimed bool, err error) {
	if time.Since(u.claimed) > reservationTTL {
		u.reservations = nil // they have expired
	}
	claim := false
	for scope := range t.observed {
		if changed(scope) {
			u.scopeConflicts[scope]++
		}
		claim = claim || u.scopeConflicts[scope] >= reserveAfter
	}
	if !claim || len(u.reservations) > 0 {
		return false, nil
	}
	if err := u.reserveScopes(ctx, t); err != nil {
		return false, err
	}
	u.attempts++
	return true, u.exhausted()
}

func actual(c store.Commit, out store.Outcome, key string) store.KV {
	for i, cmp := range c.Compares {
		if cmp.Key == key {
			return out.Actual[i]
		}
	}
	return store.KV{}
}

// backOff counts a conflict and backs off. The first retry comes at once, from
// what the failed commit told; later ones sleep and read afresh.
func (u *update) backOff(ctx context.Context, seed snapshot) (snapshot, error) {
	u.attempts++
	if err := u.exhausted(); err != nil {
		return snapshot{}, err
	}
	if u.attempts == 1 {
		return seed, nil
	}
	return snapshot{}, u.retry.Pause(ctx)
}

func (u *update) exhausted() error {
	if u.attempts < maxAttempts {
		return nil
	}
	return model.Errorf(model.ErrConflict, "others kept changing the same objects during %d attempts; try again", u.attempts)
}

// reserveScopes makes the writers of the observed scopes wait, until this Update ends
// or reservationTTL has passed. Safety does not depend on it: the generations are
// compared all the same.
func (u *update) reserveScopes(ctx context.Context, t *txn) error {
	lease, err := u.Backend.GrantLease(ctx, reservationTTL)
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	for {
		var c store.Commit
		var scopes []string
		for scope := range t.observed {
			scopes = append(scopes, scope)
			c.Compares = append(c.Compares, store.Compare{Key: reservationKey(scope)})
			c.Puts = append(c.Puts, store.Put{Key: reservationKey(scope), Lease: lease})
		}
		out, err := u.Backend.Commit(ctx, c)
		switch {
		case errors.Is(err, store.ErrSessionLost): // we waited longer than the lease lives
			if lease, err = u.Backend.GrantLease(ctx, reservationTTL); err != nil {
				return fmt.Errorf("claim: %w", err)
			}
			continue
		case err != nil:
			return fmt.Errorf("claim: %w", err)
		case out.Committed:
			u.claimed = time.Now()
			u.reservations = make(map[string]store.Revision, len(scopes))
			for _, scope := range scopes {
				u.reservations[scope] = out.Revision
			}
			return nil
		}
		if err := u.await(ctx, scopes); err != nil {
			return err
		}
	}
}

// newRetry spaces tries randomly, so that those who met do not meet again.
func newRetry() *waiting.Retry {
	return waiting.NewRetry(waiting.BackoffConfig{Base: firstBackOff, Max: lastBackOff, Jitter: 0.8})
}

// await returns when none of the scopes is claimed.
func (u *update) await(ctx context.Context, scopes []string) error {
	keys := make([]string, len(scopes))
	for i, scope := range scopes {
		keys[i] = reservationKey(scope)
	}
	for retry := newRetry(); ; {
		d := retry.Delay()
		if u.waited += d; u.waited > reservationTimeout {
			return model.Errorf(model.ErrConflict, "%s is being changed by others; try again", strings.Join(scopes, ", "))
		}
		if err := waiting.Pause(ctx, d); err != nil {
			return err
		}
		kvs, _, err := u.Backend.ReadKeys(ctx, 0, keys)
		if err != nil {
			return err
		}
		free := true
		for _, kv := range kvs {
			free = free && !kv.Exists()
		}
		if free {
			return nil
		}
	}
}

// release gives claims back, also when the caller's context has ended; what
// fails here the lease does.
func (u *update) release(ctx context.Context) {
	if len(u.reservations) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reservationTTL/2)
	defer cancel()
	var c store.Commit // they were made by one commit with one lease, so they are there, or gone, together
	for scope, create := range u.reservations {
		c.Compares = append(c.Compares, store.Compare{Key: reservationKey(scope), Create: create, ByCreate: true})
		c.Deletes = append(c.Deletes, reservationKey(scope))
	}
	_, _ = u.Backend.Commit(ctx, c)
	u.reservations = nil
}
