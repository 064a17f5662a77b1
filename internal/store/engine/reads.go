package engine

import (
	"slices"

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
	if near, ok := t.near.(store.NearRanger); ok && limit == 0 {
		if kvs, rev := near.RangeNear(t.at, prefix); rev != 0 {
			t.at, t.usedNear = rev, true
			if !t.can.Past {
				t.ranges = append(t.ranges, seenRange{prefix, limit, kvs})
			}
			return kvs, nil
		}
	}
	at := t.at
	if !t.can.Past {
		at = 0
	}
	kvs, rev, err := t.b.ReadRange(t.ctx, at, prefix, limit)
	if err != nil {
		return nil, err
	}
	if t.at == 0 {
		t.at = rev
	}
	if t.can.Past {
		return kvs, nil
	}
	if err := t.moveTo(rev); err != nil {
		return nil, err
	}
	t.ranges = append(t.ranges, seenRange{prefix, limit, kvs})
	return kvs, nil
}

// saw notes that fn has read a key, in case the snapshot has to move.
func (t *txn) saw(key string) {
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
	t.at = rev
	return nil
}
