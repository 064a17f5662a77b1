package store

import (
	"maps"
	"slices"
	"strings"
)

// CachedRanger is a CachedReader that also answers for all keys under some prefixes.
type CachedRanger interface {
	// RangeCached returns the keys under a prefix, in order, at revision at, or at its own
	// when at is 0, and that revision; 0 when it cannot.
	RangeCached(at Revision, prefix string) ([]KV, Revision)
}

// cachedRange is what a readCache holds under a prefix.
type cachedRange struct {
	kvs     map[string]KV
	changed Revision // as of the last change, which may be older: earlier revisions are not known
}

// Ranges has ranges of these prefixes answered from memory too, in transactions that
// Update begins. They are to be small, and among the Follower's. It is for before Run.
func (f *Follower) Ranges(prefixes ...string) {
	f.cache.ranges = map[string]*cachedRange{}
	for _, p := range prefixes {
		f.cache.ranges[p] = &cachedRange{kvs: map[string]KV{}}
	}
}

// applyRanges enters a batch; c.mu is held.
func (c *readCache) applyRanges(b Batch) {
	for prefix, r := range c.ranges {
		if b.Snapshot {
			clear(r.kvs)
		}
		if b.Snapshot || b.Listed { // a list does not tell when things came or went
			r.changed = b.Revision
		}
		for _, e := range b.Events {
			if !strings.HasPrefix(e.KV.Key, prefix) {
				continue
			}
			r.changed = b.Revision
			if e.Deleted() {
				delete(r.kvs, e.KV.Key)
			} else {
				r.kvs[e.KV.Key] = e.KV
			}
		}
	}
}

// RangeCached implements CachedRanger.
func (c *readCache) RangeCached(at Revision, prefix string) ([]KV, Revision) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r := c.ranges[prefix]
	if at == 0 {
		at = c.rev
	}
	if r == nil || c.rev == 0 || at > c.rev || at < r.changed {
		return nil, 0
	}
	return slices.SortedFunc(maps.Values(r.kvs), func(a, b KV) int { return strings.Compare(a.Key, b.Key) }), at
}
