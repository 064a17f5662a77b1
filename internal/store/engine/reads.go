package engine

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/store"
)

// seenRange is a range that fn has read, with what there was.
type seenRange struct {
	prefix string
	limit  int
	kvs    []store.KV
}

// readKeys reads keys at the transaction's snapshot.
func (t *txn) readKeys(keys []string) ([]store.KV, error) {
	if t.can.Past || t.at == 0 {
		kvs, rev, err := t.b.ReadKeys(t.ctx, t.at, keys)
		if err == nil && t.at == 0 {
			t.at = rev
		}
		return kvs, err
	}
	kvs, rev, err := t.b.ReadKeys(t.ctx, 0, keys)
	if err != nil {
		return nil, err
	}
	return kvs, t.moveTo(rev)
}

// readRange reads a range at the transaction's snapshot.
func (t *txn) readRange(prefix string, limit int) ([]store.KV, error) {
	if near, ok := t.near.(store.CachedRanger); ok && limit == 0 {
		if kvs, rev := near.RangeCached(t.at, prefix); rev != 0 {
			t.at, t.usedCache = rev, true
			if !t.can.Past {
				t.ranges = append(t.ranges, seenRange{prefix, limit, slices.Clone(kvs)})
			}
			return kvs, nil
		}
	}
	kvs, known := t.prefetched(prefix, limit)
	if !known {
		var rev store.Revision
		var err error
		if kvs, rev, err = t.b.ReadRange(t.ctx, t.from(), prefix, limit); err != nil {
			return nil, err
		}
		if err := t.setSnapshot(rev); err != nil {
			return nil, err
		}
	}
	if !t.can.Past {
		t.ranges = append(t.ranges, seenRange{prefix, limit, slices.Clone(kvs)})
	}
	return kvs, nil
}

// from is the revision that the backend has to read at, 0 = now.
func (t *txn) from() store.Revision {
	if !t.can.Past {
		return 0
	}
	return t.at
}

// setSnapshot enters at which revision it was read.
func (t *txn) setSnapshot(rev store.Revision) error {
	if t.at == 0 {
		t.at = rev
	}
	if t.can.Past {
		return nil
	}
	return t.moveTo(rev)
}

// scopesAtOnce is how many scopes are read at once: with a generation each, and sweptKey.
const scopesAtOnce = (store.MinOps - 1) / 2

// PrefetchScopes implements store.Tx.
func (t *txn) PrefetchScopes(limit int, scopes ...string) error {
	scopes = slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool {
		_, known := t.prefetched(scope, limit)
		return known
	})
	for some := range slices.Chunk(scopes, scopesAtOnce) {
		keys := []string{sweptKey}
		for _, scope := range some {
			keys = append(keys, genKey(scope))
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { _, known := t.cache[key]; return known })
		kvs, ranges, rev, err := t.b.ReadMany(t.ctx, t.from(), keys, some, limit)
		if err == nil {
			err = t.setSnapshot(rev)
		}
		if err != nil {
			return t.fail(err)
		}
		for i, key := range keys {
			t.cache[key] = kvs[i]
		}
		for i, scope := range some {
			t.prefetchedScopes = append(t.prefetchedScopes, seenRange{scope, limit, ranges[i]})
		}
	}
	return nil
}

// prefetched answers a range by what PrefetchScopes has read, if that is enough.
func (t *txn) prefetched(prefix string, limit int) (kvs []store.KV, known bool) {
	for _, r := range t.prefetchedScopes {
		whole := len(r.kvs) < r.limit
		if !strings.HasPrefix(prefix, r.prefix) || !whole && (prefix != r.prefix || limit == 0 || limit > r.limit) {
			continue
		}
		for _, kv := range r.kvs {
			if strings.HasPrefix(kv.Key, prefix) && (limit == 0 || len(kvs) < limit) {
				kvs = append(kvs, kv)
			}
		}
		return kvs, true
	}
	return nil, false
}

// recordRead notes that fn has read a key, in case the snapshot has to move.
func (t *txn) recordRead(key string) {
	if t.can.Past {
		return
	}
	if t.seen == nil {
		t.seen = map[string]struct{}{}
	}
	t.seen[key] = struct{}{}
}

// moveTo makes a later revision the snapshot, of a backend that cannot read
// earlier ones: what fn has read must be the same there, which it is if it still
// is the same now, else ErrCompacted. (A key that was missing, and came and went
// in between, is not noticed; what the commit compares it does notice.)
func (t *txn) moveTo(rev store.Revision) error {
	if rev == t.at {
		return nil
	}
	keys := make([]string, 0, len(t.seen))
	for key := range t.seen {
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		now, _, err := t.b.ReadKeys(t.ctx, 0, keys)
		if err != nil {
			return err
		}
		for i, key := range keys {
			if now[i].Mod != t.cache[key].Mod {
				return store.ErrCompacted
			}
		}
	}
	for _, r := range t.ranges {
		now, _, err := t.b.ReadRange(t.ctx, 0, r.prefix, r.limit)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(now, r.kvs, func(a, b store.KV) bool { return a.Key == b.Key && a.Mod == b.Mod }) {
			return store.ErrCompacted
		}
	}
	for key := range t.cache { // prefetched, not read yet: it may be another one at rev
		if _, used := t.seen[key]; !used {
			delete(t.cache, key)
		}
	}
	t.prefetchedScopes = nil // likewise
	t.at = rev
	return nil
}
