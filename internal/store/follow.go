package store

import (
	"context"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
)

// Follower keeps an in-memory view up to date through a mirror and lets readers
// wait until it is as fresh as they need:
//
//	f := store.NewFollower(st, []string{store.Root + "state/"}, view.apply)
//	go f.Run(ctx)
//	...
//	if _, err := f.Fresh(ctx); err != nil { ... }  // then read the view: linearizable
//
// apply runs in one goroutine; guarding the view against its readers is the
// owner's business. A revision counts as reached when apply has returned.
type Follower struct {
	store    Store
	prefixes []string
	apply    func(Batch) error
	options  []MirrorOption

	mu      sync.Mutex
	rev     Revision
	lists   int // how often the mirror has listed
	ready   bool
	state   error
	changed chan struct{} // closed and replaced whenever the above change

	fresh freshness
	cache readCache
}

// NewFollower makes a Follower that has not started. Options are those of
// Mirror; FollowCommits is implied.
func NewFollower(st Store, prefixes []string, apply func(Batch) error, opts ...MirrorOption) *Follower {
	return &Follower{
		store: st, prefixes: prefixes, apply: apply, options: opts,
		state:   model.Errorf(model.ErrUnavailable, "the store has not been read yet"),
		changed: make(chan struct{}),
		cache:   readCache{prefixes: prefixes, gone: map[string]Revision{}},
	}
}

// Run follows the store until ctx ends or apply fails, and returns that error.
func (f *Follower) Run(ctx context.Context) error {
	var given MirrorOptions
	for _, opt := range f.options {
		opt(&given)
	}
	onState := func(err error) {
		f.update(func() { f.state = err })
		if given.OnState != nil {
			given.OnState(err)
		}
	}
	err := f.store.Mirror(ctx, f.prefixes, func(b Batch) error {
		f.cache.apply(b)
		if err := f.apply(b); err != nil {
			return err
		}
		f.update(func() {
			if f.rev, f.ready = b.Revision, true; b.Listed {
				f.lists++
			}
		})
		return nil
	}, FollowCommits(), OnState(onState), Since(given.Since))
	f.update(func() { f.state = model.Errorf(model.ErrUnavailable, "the view of the store has ended: %w", err) })
	return err
}

func (f *Follower) update(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Revision returns how far the view is; 0 before the first snapshot.
func (f *Follower) Revision() Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rev
}

// State returns nil while the mirror follows the store, else why not.
func (f *Follower) State() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// WaitFor returns when the view has reached a revision; when ctx ends first, it
// fails with the mirror's trouble, if it has one, or the context's error.
func (f *Follower) WaitFor(ctx context.Context, rev Revision) error {
	return f.wait(ctx, func() bool { return f.ready && f.rev >= rev })
}

// wait returns when ok, which is called under the lock, does.
func (f *Follower) wait(ctx context.Context, ok func() bool) error {
	for {
		f.mu.Lock()
		reached, state, changed := ok(), f.state, f.changed
		f.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if state != nil {
				return state
			}
			return ctx.Err()
		}
	}
}

// Fresh returns when the view contains every Update that ended before the call:
// what is read from it then is a linearizable read. Concurrent calls share
// their read of the store.
func (f *Follower) Fresh(ctx context.Context) (Revision, error) {
	rev, err := f.fresh.read(ctx, f.commitRevision)
	if err != nil {
		return 0, err
	}
	return rev, f.WaitFor(ctx, rev)
}

// Older reports whether a commit, named by its Place, is missing from the history of the
// store; false when that cannot be said.
func (f *Follower) Older(ctx context.Context, place string) (bool, error) {
	if st, ok := f.store.(Historian); ok && place != "" {
		return st.Older(ctx, place)
	}
	return false, nil
}

// commitRevision reads the revision of the last commit. A store that is behind
// what the view has seen of it already is another one, or an older state: then
// the view is of what was, and has to list first.
func (f *Follower) commitRevision(ctx context.Context) (Revision, error) {
	st, ok := f.store.(Positioner)
	if !ok {
		return f.store.CommitRevision(ctx)
	}
	f.mu.Lock()
	seen, lists := f.rev, f.lists
	f.mu.Unlock()
	last, now, err := st.Position(ctx)
	if err == nil && now < seen {
		err = f.wait(ctx, func() bool { return f.lists != lists })
	}
	return last, err
}

// Update is Store.Update over the followed store, and reads the mirror's keys from memory
// (see Engine.UpdateCached): its cost is the commit's alone, as long as fn reads keys under
// the followed prefixes.
func (f *Follower) Update(ctx context.Context, fn func(Tx) error) (Revision, error) {
	if st, ok := f.store.(CachedUpdater); ok {
		return st.UpdateCached(ctx, &f.cache, fn)
	}
	return f.store.Update(ctx, fn)
}

// UpdateFresh is Update after Fresh: what fn makes of the mirror's state counts
// then, also when nothing is committed that would prove it, so that fn runs once
// and reads from memory only, however much it reads.
func (f *Follower) UpdateFresh(ctx context.Context, fn func(Tx) error) (Revision, error) {
	last, err := f.Fresh(ctx)
	if err != nil {
		return 0, err
	}
	if st, ok := f.store.(CachedUpdater); ok {
		return st.UpdateFresh(ctx, &f.cache, last, fn)
	}
	return f.store.Update(ctx, fn)
}
