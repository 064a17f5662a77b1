package store

import (
	"context"
	"slices"
	"strings"
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
	ready   bool
	state   error
	changed chan struct{} // closed and replaced whenever the above change

	fresh freshness
	near  nearCache
}

// NewFollower makes a Follower that has not started. Options are those of
// Mirror; FollowCommits is implied.
func NewFollower(st Store, prefixes []string, apply func(Batch) error, opts ...MirrorOption) *Follower {
	return &Follower{
		store: st, prefixes: prefixes, apply: apply, options: opts,
		state:   model.Errorf(model.ErrUnavailable, "the store has not been read yet"),
		changed: make(chan struct{}),
		near:    nearCache{prefixes: prefixes},
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
		f.near.apply(b)
		if err := f.apply(b); err != nil {
			return err
		}
		f.update(func() { f.rev, f.ready = b.Revision, true })
		return nil
	}, FollowCommits(), OnState(onState))
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
	for {
		f.mu.Lock()
		reached, state, changed := f.ready && f.rev >= rev, f.state, f.changed
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
	rev, err := f.fresh.read(ctx, f.store.CommitRevision)
	if err != nil {
		return 0, err
	}
	return rev, f.WaitFor(ctx, rev)
}

// Update is Store.Update over the followed store, with what the mirror knows
// read from memory (see Engine.UpdateNear): its cost is that of the commit
// alone, as long as what fn reads lies under the followed prefixes.
func (f *Follower) Update(ctx context.Context, fn func(Tx) error) (Revision, error) {
	if st, ok := f.store.(NearUpdater); ok {
		return st.UpdateNear(ctx, &f.near, fn)
	}
	return f.store.Update(ctx, fn)
}

// nearCache holds the records of a mirror as they are stored.
type nearCache struct {
	prefixes []string

	mu  sync.RWMutex
	rev Revision // 0 before the first snapshot
	kvs map[string]KV
}

func (c *nearCache) apply(b Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Snapshot {
		c.kvs = make(map[string]KV, len(b.Events))
	}
	for _, e := range b.Events {
		if e.Deleted() {
			delete(c.kvs, e.KV.Key)
		} else {
			c.kvs[e.KV.Key] = e.KV
		}
	}
	c.rev = b.Revision
}

// ReadNear implements Near. Another revision than the present one it does not
// know.
func (c *nearCache) ReadNear(at Revision, keys []string) ([]KV, Revision) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.rev == 0 || at != 0 && at != c.rev {
		return nil, 0
	}
	kvs := make([]KV, 0, len(keys))
	for _, key := range keys {
		if kv, ok := c.kvs[key]; ok {
			kvs = append(kvs, kv)
		} else if key != CommitKey && slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			kvs = append(kvs, KV{Key: key})
		}
	}
	return kvs, c.rev
}

// freshness lets concurrent readers share one read, as long as it began after
// each of them asked.
type freshness struct {
	mu   sync.Mutex
	busy *sharedRead // under way: began before whoever comes now
	next *sharedRead // begins when busy ends; everybody who comes now may share it
}

type sharedRead struct {
	begin chan struct{} // closed when its leader may begin
	done  chan struct{}
	rev   Revision
	err   error
}

func (r *freshness) read(ctx context.Context, read func(context.Context) (Revision, error)) (Revision, error) {
	r.mu.Lock()
	call, lead := r.next, false
	if call == nil {
		call, lead = &sharedRead{begin: make(chan struct{}), done: make(chan struct{})}, true
		if r.busy == nil {
			r.busy = call
			close(call.begin)
		} else {
			r.next = call
		}
	}
	r.mu.Unlock()
	if lead {
		// The leader reads with its own context; when that ends, followers read
		// for themselves.
		<-call.begin
		call.rev, call.err = read(ctx)
		r.mu.Lock()
		r.busy = r.next
		r.next = nil
		if r.busy != nil {
			close(r.busy.begin)
		}
		r.mu.Unlock()
		close(call.done)
		return call.rev, call.err
	}
	select {
	case <-call.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if call.err != nil && ctx.Err() == nil {
		return read(ctx)
	}
	return call.rev, call.err
}
