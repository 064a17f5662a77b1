package store

import (
	"slices"
	"strings"
	"sync"
)

// nearCache holds the records of a mirror as they are stored, and answers for
// the present revision and, of what has not changed since, for earlier ones: a
// transaction that reads in several steps goes on reading from memory while
// others commit.
type nearCache struct {
	prefixes []string

	mu   sync.RWMutex
	rev  Revision // 0 before the first snapshot
	kvs  map[string]KV
	from Revision            // earlier ones are not known
	gone map[string]Revision // what was deleted after from, and when
}

// maxGone is how many deletions are remembered.
const maxGone = 4096

func (c *nearCache) apply(b Batch) {
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
	c.rev = b.Revision
	if b.Listed || len(c.gone) > maxGone { // a list does not tell when things went, or may be another store's
		c.gone, c.from = map[string]Revision{}, b.Revision
	}
}

// ReadNear implements Near.
func (c *nearCache) ReadNear(at Revision, keys []string) ([]KV, Revision) {
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
