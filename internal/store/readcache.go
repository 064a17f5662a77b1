package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

// CachedReader answers reads from memory, as of a revision that may be some moments
// old; Follower is one.
type CachedReader interface {
	// ReadCached returns those of the keys that it knows (missing ones as KVs that
	// do not exist) at revision at, or at its own when at is 0, and that
	// revision; 0 when it cannot.
	ReadCached(at Revision, keys []string) ([]KV, Revision)
}

// CachedUpdater is a Store whose Update can read from memory first. All of ours
// are, since an engine.Engine is.
type CachedUpdater interface {
	UpdateCached(ctx context.Context, near CachedReader, fn func(Tx) error) (Revision, error)
	// UpdateFresh is UpdateCached for a near that is fresh: it holds what was
	// committed before the call, the last of it at revision last.
	UpdateFresh(ctx context.Context, near CachedReader, last Revision, fn func(Tx) error) (Revision, error)
}

// Positioner is a Store that reports its own revision beside the revision of the last
// commit. All of ours do, since an Engine does.
type Positioner interface {
	Position(ctx context.Context) (last, now Revision, err error)
}

// readCache holds the records of a mirror as they are stored, and answers for
// the present revision and, of what has not changed since, for earlier ones: a
// transaction that reads in several steps goes on reading from memory while
// others commit.
type readCache struct {
	prefixes []string

	mu   sync.RWMutex
	rev  Revision // 0 before the first snapshot
	at   string   // its Place
	kvs  map[string]KV
	from Revision            // earlier ones are not known
	gone map[string]Revision // what was deleted after from, and when

	ranges map[string]*cachedRange // by prefix
}

// maxGone is how many deletions are remembered.
const maxGone = 4096

func (c *readCache) apply(b Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Snapshot {
		c.kvs = make(map[string]KV, len(b.Events))
	}
	for _, e := range b.Events {
		if e.Deleted() {
			delete(c.kvs, e.KV.Key)
			c.gone[e.KV.Key] = b.Revision
		} else {
			c.kvs[e.KV.Key] = e.KV
			delete(c.gone, e.KV.Key)
		}
	}
	c.rev, c.at = b.Revision, b.Place
	c.applyRanges(b)
	if b.Listed || len(c.gone) > maxGone { // a list does not tell when things went, or may be another store's
		c.gone, c.from = map[string]Revision{}, b.Revision
	}
}

// Rows returns all rows under the followed prefixes as they are stored, in no order, and
// of which revision they are, 0 before the first snapshot, and of which Batch.Place.
func (f *Follower) Rows() ([]KV, Revision, string) {
	f.cache.mu.RLock()
	defer f.cache.mu.RUnlock()
	return slices.Collect(maps.Values(f.cache.kvs)), f.cache.rev, f.cache.at
}

// ReadCached implements CachedReader.
func (f *Follower) ReadCached(at Revision, keys []string) ([]KV, Revision) {
	return f.cache.ReadCached(at, keys)
}

// ReadCached implements CachedReader.
func (c *readCache) ReadCached(at Revision, keys []string) ([]KV, Revision) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if at == 0 {
		at = c.rev
	}
	if c.rev == 0 || at > c.rev || at < c.from {
		return nil, 0
	}
	kvs := make([]KV, 0, len(keys))
	for _, key := range keys {
		switch kv, ok := c.kvs[key]; {
		case ok && kv.Mod <= at:
			kvs = append(kvs, kv)
		case !ok && c.gone[key] <= at && key != CommitKey &&
			slices.ContainsFunc(c.prefixes, func(p string) bool { return strings.HasPrefix(key, p) }):
			kvs = append(kvs, KV{Key: key})
		}
	}
	return kvs, at
}
