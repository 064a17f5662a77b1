package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// Store is the in-memory Store: the reference for what the others must do, and
// the store of tests. Client gives further connections to the same data, each
// with faults of its own.
type Store struct {
	db     *database
	can    store.Capabilities
	engine engine.Engine

	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed and replaced when faults change
	closed  bool
	largest int // most operations of a commit
	read    int // keys
}

// faults is what the hooks have asked for.
type faults struct {
	conflicts   int
	unavailable bool
	full        bool
	paused      bool
	slow        time.Duration // more for each request
	dropped     int           // how often mirrors were disconnected
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.CachedUpdater = (*Store)(nil)
	_ store.Backend       = (*Store)(nil)
)

// New returns an empty store that can what etcd can.
func New() *Store {
	return NewWith(store.Capabilities{Ops: 128, Value: 1 << 20, Bytes: 3 << 19, Past: true, Whole: true})
}

// Consul is what a Consul cluster with default settings would do: it takes 64
// operations and 512 kB in a transaction, keeps no earlier revisions, tells
// watchers the present state only, and keeps a journal.
var Consul = store.Capabilities{Ops: store.MinOps, Value: store.MinValue, Bytes: store.MinValue + 10_000}

// NewWith returns an empty store with other capabilities. What it could not do
// it refuses.
func NewWith(can store.Capabilities) *Store {
	db := &database{
		rev: 1, items: map[string][]store.KV{}, leases: map[string]*lease{}, changed: make(chan struct{}), journal: can == Consul,
	}
	db.branch(nil)
	return (&Store{can: can, db: db}).Client()
}

// Client returns another connection to the same data.
func (m *Store) Client() *Store {
	c := &Store{db: m.db, can: m.can, changed: make(chan struct{})}
	c.engine = engine.Engine{Backend: c}
	return c
}

// Conflict makes the next n commits through this connection fail as if somebody
// had been faster.
func (m *Store) Conflict(n int) { m.fault(func(f *faults) { f.conflicts = n }) }

// Unavailable makes this connection fail (true) or work again (false).
func (m *Store) Unavailable(away bool) { m.fault(func(f *faults) { f.unavailable = away }) }

// Full makes writes through this connection fail (true), as of a store without space.
func (m *Store) Full(full bool) { m.fault(func(f *faults) { f.full = full }) }

// Slow has each request through this connection take so much longer.
func (m *Store) Slow(d time.Duration) { m.fault(func(f *faults) { f.slow = d }) }

// Pause holds back delivery to the mirrors of this connection, or resumes it.
func (m *Store) Pause(paused bool) { m.fault(func(f *faults) { f.paused = paused }) }

// DropWatches disconnects the mirrors of this connection: they re-list.
func (m *Store) DropWatches() { m.fault(func(f *faults) { f.dropped++ }) }

// Compact forgets all old revisions: mirrors that are behind have to re-list,
// transactions that read at an old snapshot have to run again.
func (m *Store) Compact() { m.db.compact() }

// ExpireSessions ends all sessions at once, as if their holders had died long
// ago.
func (m *Store) ExpireSessions() { m.db.expireAll() }

func (m *Store) fault(change func(*faults)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.faults)
	close(m.changed)
	m.changed = make(chan struct{})
}

// condition returns the present faults and what tells of their change.
func (m *Store) condition() (faults, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults, m.changed
}

func (m *Store) reachable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	away, slow := m.closed || m.faults.unavailable, m.faults.slow
	m.mu.Unlock()
	if away {
		return model.Errorf(model.ErrUnavailable, "the in-memory store is unavailable")
	}
	return waiting.Pause(ctx, slow)
}

// Close ends this connection; the data stays for the others.
func (m *Store) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return nil
}

// Update implements Store.
func (m *Store) Update(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
	return m.engine.Update(ctx, fn)
}

// UpdateCached implements NearUpdater.
func (m *Store) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	return m.engine.UpdateCached(ctx, near, fn)
}

// UpdateFresh implements NearUpdater.
func (m *Store) UpdateFresh(ctx context.Context, near store.CachedReader, last store.Revision, fn func(store.Tx) error) (store.Revision, error) {
	return m.engine.UpdateFresh(ctx, near, last, fn)
}

// Position implements Positioner.
func (m *Store) Position(ctx context.Context) (last, now store.Revision, err error) {
	return m.engine.Position(ctx)
}

// CommitRevision implements Store.
func (m *Store) CommitRevision(ctx context.Context) (store.Revision, error) {
	return m.engine.CommitRevision(ctx)
}

// Get implements Store.
func (m *Store) Get(ctx context.Context, key string) (store.KV, error) {
	kvs, _, err := m.ReadKeys(ctx, 0, []string{key})
	if err != nil {
		return store.KV{}, err
	}
	return kvs[0], nil
}

// Range implements Store.
func (m *Store) Range(ctx context.Context, prefix string) ([]store.KV, store.Revision, error) {
	return m.ReadRange(ctx, 0, prefix, 0)
}

// Capabilities implements store.Backend.
func (m *Store) Capabilities() store.Capabilities { return m.can }

// Largest returns the most operations that a commit through this connection had
// since the last call.
func (m *Store) Largest() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.largest
	m.largest = 0
	return n
}

// KeysRead returns how many keys were read through this connection since the
// last call, without the keys that mirrors list; a range without any counts as one.
func (m *Store) KeysRead() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.read
	m.read = 0
	return n
}

func (m *Store) count(keys int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read += keys
}

// past refuses to read an earlier revision where that cannot be.
func (m *Store) past(at store.Revision) error {
	if at != 0 && !m.can.Past {
		return model.Errorf(model.ErrInvalid, "the in-memory store keeps no earlier revisions, and revision %d was requested", at)
	}
	return nil
}

// ReadKeys implements Backend.
func (m *Store) ReadKeys(ctx context.Context, at store.Revision, keys []string) ([]store.KV, store.Revision, error) {
	if err := m.reachable(ctx); err != nil {
		return nil, 0, err
	}
	if err := m.past(at); err != nil {
		return nil, 0, err
	}
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	at, err := m.db.snapshot(at)
	if err != nil {
		return nil, 0, err
	}
	m.count(len(keys))
	kvs := make([]store.KV, len(keys))
	for i, key := range keys {
		kvs[i] = m.db.get(key, at)
	}
	return kvs, at, nil
}

// ReadRange implements Backend.
func (m *Store) ReadRange(ctx context.Context, at store.Revision, prefix string, limit int) ([]store.KV, store.Revision, error) {
	if err := m.reachable(ctx); err != nil {
		return nil, 0, err
	}
	if err := m.past(at); err != nil {
		return nil, 0, err
	}
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	at, err := m.db.snapshot(at)
	if err != nil {
		return nil, 0, err
	}
	kvs := m.db.list(prefix, at, limit)
	m.count(max(1, len(kvs)))
	return kvs, at, nil
}

// ReadMany implements Backend.
func (m *Store) ReadMany(ctx context.Context, at store.Revision, keys, prefixes []string, limit int) ([]store.KV, [][]store.KV, store.Revision, error) {
	if err := m.reachable(ctx); err != nil {
		return nil, nil, 0, err
	}
	if err := m.past(at); err != nil {
		return nil, nil, 0, err
	}
	if n := len(keys) + len(prefixes); n > store.MinOps {
		return nil, nil, 0, model.Errorf(store.ErrTooLarge, "the in-memory store reads %d things at once, not %d", store.MinOps, n)
	}
	m.db.mu.Lock()
	defer m.db.mu.Unlock()
	at, err := m.db.snapshot(at)
	if err != nil {
		return nil, nil, 0, err
	}
	kvs, ranges := make([]store.KV, len(keys)), make([][]store.KV, len(prefixes))
	for i, key := range keys {
		kvs[i] = m.db.get(key, at)
	}
	m.count(len(keys))
	for i, prefix := range prefixes {
		ranges[i] = m.db.list(prefix, at, limit)
		m.count(max(1, len(ranges[i])))
	}
	return kvs, ranges, at, nil
}

// Commit implements Backend.
func (m *Store) Commit(ctx context.Context, c store.Commit) (store.Outcome, error) {
	if err := m.reachable(ctx); err != nil {
		return store.Outcome{}, err
	}
	m.mu.Lock()
	m.largest = max(m.largest, c.Ops())
	m.mu.Unlock()
	if n := c.Ops(); n > m.can.Ops {
		return store.Outcome{}, model.Errorf(store.ErrTooLarge, "the in-memory store takes %d operations, not %d", m.can.Ops, n)
	}
	if n := c.Bytes(); n > m.can.Bytes {
		return store.Outcome{}, model.Errorf(store.ErrTooLarge, "the in-memory store takes %d bytes, not %d", m.can.Bytes, n)
	}
	m.mu.Lock()
	full, conflict := m.faults.full, m.faults.conflicts > 0
	if conflict {
		m.faults.conflicts--
	}
	m.mu.Unlock()
	if full {
		return store.Outcome{}, model.Errorf(model.ErrUnavailable, "the in-memory store is full and takes no writes")
	}
	return m.db.commit(c, conflict)
}

// GrantLease implements Backend.
func (m *Store) GrantLease(ctx context.Context, ttl time.Duration) (string, error) {
	if err := m.reachable(ctx); err != nil {
		return "", err
	}
	return m.db.grant(ttl).id, nil
}

// Mirror implements Store.
func (m *Store) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.OnState == nil {
		o.OnState = func(error) {}
	}
	state := store.NewMirrorState(prefixes, o.Commits)
	state.SetSince(o.Since)
	for {
		reason, err := m.follow(ctx, state, fn, o.OnState)
		if err != nil {
			return err
		}
		o.OnState(reason)
	}
}

// follow lists and then delivers commits until a gap, whose reason it returns.
func (m *Store) follow(ctx context.Context, state *store.MirrorState, fn func(store.Batch) error, onState func(error)) (reason, err error) {
	began, err := m.deliverable(ctx, onState)
	if err != nil {
		return nil, err
	}
	list := m.db.listAll(state.Prefixes(), state.Since())
	state.SetPlace(list.place, list.older)
	if b, deliver := state.Relist(list.kvs, list.rev, list.identity); deliver {
		if err := fn(b); err != nil {
			return nil, err
		}
	}
	onState(nil)
	from, to := state.Span()
	for {
		now, faulty := m.condition()
		if now.dropped != began || now.unavailable {
			return model.Errorf(model.ErrUnavailable, "the mirror was disconnected"), nil
		}
		entries, more, ok := m.db.since(state.Last(), list.generation)
		switch {
		case now.paused:
			entries, more = nil, nil // wait for the faults to change
		case !ok:
			return fmt.Errorf("revisions after %d were compacted: %w", state.Last(), store.ErrCompacted), nil
		}
		if !m.can.Whole {
			entries = joined(entries)
		}
		for _, entry := range entries {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			state.SetPlace(place(entry.rev, list.branch), false)
			b, deliver := state.Commit(within(entry.kvs, from, to), entry.rev)
			if !deliver {
				continue
			}
			if err := fn(b); err != nil {
				return nil, err
			}
		}
		if len(entries) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-more:
		case <-faulty:
		}
	}
}

// joined merges entries into what a watcher sees that gets the latest state only.
func joined(entries []entry) []entry {
	if len(entries) < 2 {
		return entries
	}
	last := map[string]store.KV{}
	for _, e := range entries {
		for _, kv := range e.kvs {
			last[kv.Key] = kv
		}
	}
	one := entry{rev: entries[len(entries)-1].rev}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		one.kvs = append(one.kvs, last[key])
	}
	return []entry{one}
}

// deliverable waits until the mirror may list, and returns how often mirrors
// had been disconnected by then.
func (m *Store) deliverable(ctx context.Context, onState func(error)) (dropped int, err error) {
	told := false
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		now, faulty := m.condition()
		if !now.unavailable && !now.paused {
			return now.dropped, nil
		}
		if now.unavailable && !told {
			onState(model.Errorf(model.ErrUnavailable, "the in-memory store is unavailable"))
			told = true
		}
		select {
		case <-ctx.Done():
		case <-faulty:
		}
	}
}

func within(kvs []store.KV, from, to string) []store.KV {
	lo := sort.Search(len(kvs), func(i int) bool { return kvs[i].Key >= from })
	hi := len(kvs)
	if to != "" {
		hi = sort.Search(len(kvs), func(i int) bool { return kvs[i].Key >= to })
	}
	return kvs[lo:max(lo, hi)]
}

// NewSession implements Store.
func (m *Store) NewSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if err := m.reachable(ctx); err != nil {
		return nil, err
	}
	if ttl <= 0 {
		return nil, model.Errorf(model.ErrInvalid, "session: ttl %s must be positive", ttl)
	}
	lease := m.db.grant(ttl)
	m.db.keepAlive(lease)
	s := &session{db: m.db, lease: lease}
	s.stop = context.AfterFunc(ctx, func() { m.db.stopKeepAlive(lease) })
	return s, nil
}

type session struct {
	db    *database
	lease *lease
	stop  func() bool
}

func (s *session) ID() string            { return s.lease.id }
func (s *session) Done() <-chan struct{} { return s.lease.done }

func (s *session) Close() error {
	s.stop()
	s.db.expire(s.lease)
	return nil
}
