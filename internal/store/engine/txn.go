package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// txn is the one implementation of Tx: it buffers writes, records reads, and
// leaves to a Backend only reading at a revision and committing.
type txn struct {
	ctx context.Context //nolint:containedctx // a Tx lives within one call of Update
	b   store.Backend
	can store.Capabilities

	at    store.Revision      // snapshot; 0 = not fixed yet
	cache map[string]store.KV // read at the snapshot

	reads    map[string]store.Revision // read set: mod revision that each key must still have
	writes   map[string]write
	prefixes []string // deleted
	fences   []store.Compare
	observed map[string]store.Revision // scope -> mod revision of its generation
	// noGeneration: a scope observed has no generation, so none may be swept.
	noGeneration bool
	touched      map[string]struct{}

	near      store.CachedReader // nil: read from the store only
	usedCache bool

	seen             map[string]struct{} // read by fn; only without Capabilities.Past
	ranges           []seenRange         // likewise
	prefetchedScopes []seenRange         // prefetched

	blindCreate bool  // Create may assume that a key it has not read is absent
	stale       bool  // the snapshot was compacted away: run again
	err         error // first failure of the store, or of a limit
}

// write is a pending put, or a deletion.
type write struct {
	value  []byte
	lease  string
	delete bool
}

func newTxn(ctx context.Context, b store.Backend, can store.Capabilities, seed snapshot, blindCreate bool) *txn {
	t := &txn{
		ctx: ctx, b: b, can: can, at: seed.at, cache: map[string]store.KV{},
		reads: map[string]store.Revision{}, writes: map[string]write{},
		observed: map[string]store.Revision{}, touched: map[string]struct{}{},
		blindCreate: blindCreate,
	}
	for _, kv := range seed.kvs {
		t.cache[kv.Key] = kv
	}
	return t
}

// fail remembers the first failure: it decides over whatever fn makes of it.
func (t *txn) fail(err error) error {
	if errors.Is(err, store.ErrCompacted) {
		t.stale = true
	} else if t.err == nil {
		t.err = err
	}
	return err
}

func (t *txn) Prefetch(keys ...string) error {
	var missing []string
	for _, key := range keys {
		if _, ok := t.cache[key]; !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing) // there may be tens of thousands
	missing = slices.Compact(missing)
	if t.near != nil {
		if missing = t.readCached(missing); len(missing) == 0 {
			return nil
		}
	}
	kvs, err := t.readKeys(missing)
	if err != nil {
		return t.fail(err)
	}
	for i, key := range missing {
		t.cache[key] = kvs[i]
	}
	return nil
}

// readCached reads what memory knows at the snapshot and returns the other keys.
func (t *txn) readCached(keys []string) (missing []string) {
	kvs, rev := t.near.ReadCached(t.at, keys)
	if rev == 0 {
		return keys
	}
	t.at, t.usedCache = rev, true
	for _, kv := range kvs {
		t.cache[kv.Key] = kv
	}
	return slices.DeleteFunc(keys, func(key string) bool { _, known := t.cache[key]; return known })
}

// read returns the key at the snapshot.
func (t *txn) read(key string) (store.KV, error) {
	if err := t.Prefetch(key); err != nil {
		return store.KV{}, err
	}
	t.recordRead(key)
	return t.cache[key], nil
}

// written returns the key as this transaction has written it.
func (t *txn) written(key string) (store.KV, bool) {
	if w, ok := t.writes[key]; ok {
		if w.delete {
			return store.KV{}, true
		}
		return store.KV{Key: key, Value: w.value, Create: store.Pending, Mod: store.Pending}, true
	}
	return store.KV{}, t.prefixDeleted(key)
}

func (t *txn) prefixDeleted(key string) bool {
	return slices.ContainsFunc(t.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (t *txn) Get(key string) (store.KV, error) {
	if kv, ok := t.written(key); ok {
		return kv, nil
	}
	kv, err := t.read(key)
	if err != nil {
		return store.KV{}, err
	}
	t.reads[key] = kv.Mod
	return kv, nil
}

func (t *txn) Peek(key string) (store.KV, error) {
	if kv, ok := t.written(key); ok {
		return kv, nil
	}
	return t.read(key)
}

func (t *txn) Range(prefix string, limit int) ([]store.KV, error) {
	own := map[string]write{}
	deleted := 0
	for key, w := range t.writes {
		if strings.HasPrefix(key, prefix) {
			own[key] = w
			if w.delete {
				deleted++
			}
		}
	}
	ask := limit
	switch {
	case t.prefixDeleted(prefix):
		ask = -1
	case limit > 0 && t.anyPrefixUnder(prefix):
		ask = 0 // how many of them are deleted is unknown
	case limit > 0:
		ask += deleted
	}
	var kvs []store.KV
	if ask >= 0 {
		var err error
		if kvs, err = t.readRange(prefix, ask); err != nil {
			return nil, t.fail(err)
		}
	}
	if len(own) > 0 || len(t.prefixes) > 0 {
		kvs = slices.DeleteFunc(kvs, func(kv store.KV) bool {
			_, mine := own[kv.Key]
			return mine || t.prefixDeleted(kv.Key)
		})
		for key, w := range own {
			if !w.delete {
				kvs = append(kvs, store.KV{Key: key, Value: w.value, Create: store.Pending, Mod: store.Pending})
			}
		}
		sort.Slice(kvs, func(i, j int) bool { return kvs[i].Key < kvs[j].Key })
	}
	if limit > 0 && len(kvs) > limit {
		kvs = kvs[:limit]
	}
	return kvs, nil
}

func (t *txn) anyPrefixUnder(prefix string) bool {
	return slices.ContainsFunc(t.prefixes, func(p string) bool { return strings.HasPrefix(p, prefix) })
}

func (t *txn) Put(key string, value []byte, lease store.Session) {
	if len(value) > t.can.Value {
		_ = t.fail(model.Errorf(store.ErrTooLarge, "write %s: %d bytes are more than the %d that a value may have", key, len(value), t.can.Value))
		return
	}
	w := write{value: slices.Clone(value)}
	if lease != nil {
		w.lease = lease.ID()
	}
	t.writes[key] = w
}

func (t *txn) Create(key string, value []byte, lease store.Session) error {
	kv, mine := t.written(key)
	if !mine {
		if _, cached := t.cache[key]; !cached && t.blindCreate {
			t.reads[key] = 0
		} else {
			var err error
			if kv, err = t.Get(key); err != nil {
				return err
			}
		}
	}
	if kv.Exists() {
		return model.Errorf(model.ErrExists, "key %s exists already", key)
	}
	t.Put(key, value, lease)
	return t.err
}

func (t *txn) Delete(key string) { t.writes[key] = write{delete: true} }

func (t *txn) DeletePrefix(prefix string) {
	maps.DeleteFunc(t.writes, func(key string, _ write) bool { return strings.HasPrefix(key, prefix) })
	t.prefixes = append(slices.DeleteFunc(t.prefixes, func(p string) bool { return strings.HasPrefix(p, prefix) }), prefix)
}

func (t *txn) Observe(scope string) error {
	if _, done := t.observed[scope]; done {
		return nil
	}
	t.observed[scope] = 0 // when reading fails for what others write, it counts as lost
	if err := t.Prefetch(genKey(scope), sweptKey); err != nil {
		return err
	}
	gen, err := t.read(genKey(scope))
	if err != nil {
		return err
	}
	if _, err := t.read(sweptKey); err != nil {
		return err
	}
	t.observed[scope] = gen.Mod
	if !gen.Exists() {
		// One that is made and swept before the commit would be missing again.
		t.noGeneration = true
	}
	return nil
}

func (t *txn) Touch(scope string) { t.touched[scope] = struct{}{} }

func (t *txn) Require(key string, create store.Revision) {
	t.fences = append(t.fences, store.Compare{Key: key, Create: create, ByCreate: true})
}

// writesNothing reports whether there is something to commit.
func (t *txn) writesNothing() bool {
	return len(t.writes) == 0 && len(t.prefixes) == 0 && len(t.touched) == 0
}

// commit builds what the Backend has to do, and refuses what it does not take.
// claims are the revisions of the claims that this Update holds, by scope.
func (t *txn) commit(claims map[string]store.Revision) (store.Commit, error) {
	c := t.build(claims)
	if n := c.Ops(); n > t.can.Ops {
		return c, model.Errorf(store.ErrTooLarge, "transaction has %d operations, the store takes %d", n, t.can.Ops)
	}
	if n := c.Bytes(); n > t.can.Bytes {
		return c, model.Errorf(store.ErrTooLarge, "transaction has %d bytes, the store takes %d", n, t.can.Bytes)
	}
	return c, nil
}

func (t *txn) build(claims map[string]store.Revision) store.Commit {
	c := store.Commit{DeletePrefixes: t.prefixes}
	c.Compares = append(c.Compares, t.fences...)
	for _, key := range slices.Sorted(maps.Keys(t.reads)) {
		c.Compares = append(c.Compares, store.Compare{Key: key, Mod: t.reads[key]})
	}
	for _, scope := range slices.Sorted(maps.Keys(t.observed)) {
		c.Compares = append(c.Compares, store.Compare{Key: genKey(scope), Mod: t.observed[scope]})
	}
	if t.noGeneration {
		c.Compares = append(c.Compares, store.Compare{Key: sweptKey, Mod: t.cache[sweptKey].Mod})
	}
	for _, key := range slices.Sorted(maps.Keys(t.writes)) {
		switch w := t.writes[key]; {
		case !w.delete:
			c.Puts = append(c.Puts, store.Put{Key: key, Value: w.value, Lease: w.lease})
		case !t.prefixDeleted(key):
			c.Deletes = append(c.Deletes, key)
		}
	}
	for _, scope := range slices.Sorted(maps.Keys(t.touched)) {
		c.Puts = append(c.Puts, store.Put{Key: genKey(scope)})
		if _, own := claims[scope]; !own {
			c.Compares = append(c.Compares, store.Compare{Key: reservationKey(scope)})
		}
	}
	c.Puts = append(c.Puts, store.Put{Key: store.CommitKey})
	return c
}
