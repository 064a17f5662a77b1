package memory

import (
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// logLength is how many commits a mirror may be behind before it must re-list;
// at twice as many the older half is forgotten.
const logLength = 4096

// database holds every key with its versions, and the log of recent commits.
type database struct {
	mu        sync.Mutex
	rev       store.Revision
	compacted store.Revision // reads before it fail
	keys      []string       // sorted; all that have versions
	items     map[string][]store.KV
	log       []entry
	changed   chan struct{} // closed and replaced at each commit
	leases    map[string]*lease
	lastLease int64

	generation int  // grows when the data are replaced
	journal    bool // mirrors tell of branches
	branches   []branch
}

// entry is what one revision did, sorted by key; Create 0 = deleted.
type entry struct {
	rev store.Revision
	kvs []store.KV
}

// lease is a lease; its keys go when it ends.
type lease struct {
	id    string
	ttl   time.Duration
	timer *time.Timer // nil while somebody keeps it alive
	keys  map[string]struct{}
	done  chan struct{}
	ended bool
	lost  bool // done is closed
}

// snapshot checks that revision at can be read; 0 is now.
func (db *database) snapshot(at store.Revision) (store.Revision, error) {
	if at == 0 {
		return db.rev, nil
	}
	if at < db.compacted {
		return 0, store.ErrCompacted
	}
	return at, nil
}

// get returns the key at a revision; the caller holds the lock.
func (db *database) get(key string, at store.Revision) store.KV {
	for _, version := range slices.Backward(db.items[key]) {
		if version.Mod > at {
			continue
		}
		if version.Exists() {
			return version
		}
		break
	}
	return store.KV{Key: key}
}

func (db *database) list(prefix string, at store.Revision, limit int) []store.KV {
	var kvs []store.KV
	for i := sort.SearchStrings(db.keys, prefix); i < len(db.keys) && strings.HasPrefix(db.keys[i], prefix); i++ {
		if kv := db.get(db.keys[i], at); kv.Exists() {
			if kvs = append(kvs, kv); len(kvs) == limit {
				break
			}
		}
	}
	return kvs
}

// listing is what a mirror lists.
type listing struct {
	kvs        []store.KV
	rev        store.Revision
	identity   store.KV // of the store
	generation int
	branch     string // of what comes
	place      string
	older      bool // the history lacks a place
}

func (db *database) listAll(prefixes []string, since string) listing {
	db.mu.Lock()
	defer db.mu.Unlock()
	l := listing{rev: db.rev, identity: db.get(store.StoreIdentityKey, db.rev), generation: db.generation, older: db.isMissing(since)}
	l.branch, l.place = db.newest()
	for _, p := range prefixes {
		l.kvs = append(l.kvs, db.list(p, db.rev, 0)...)
	}
	return l
}

// since returns the commits after a revision and what tells of the next one;
// false when some of them are forgotten, or the data are others.
func (db *database) since(rev store.Revision, generation int) ([]entry, <-chan struct{}, bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if generation != db.generation || rev < db.compacted-1 && rev < db.rev {
		return nil, db.changed, false
	}
	i := sort.Search(len(db.log), func(i int) bool { return db.log[i].rev > rev })
	return slices.Clone(db.log[i:]), db.changed, true
}

func (db *database) commit(c store.Commit, conflict bool) (store.Outcome, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	out := store.Outcome{Revision: db.rev, Committed: !conflict}
	for _, cmp := range c.Compares {
		kv := db.get(cmp.Key, db.rev)
		out.Actual = append(out.Actual, kv)
		out.Committed = out.Committed && cmp.Holds(kv)
	}
	if !out.Committed {
		return out, nil
	}
	for _, put := range c.Puts {
		if put.Lease != "" && db.leases[put.Lease] == nil {
			return store.Outcome{}, store.ErrSessionLost
		}
	}
	deleted := slices.Clone(c.Deletes)
	for _, prefix := range c.DeletePrefixes {
		for _, kv := range db.list(prefix, db.rev, 0) {
			if !slices.ContainsFunc(c.Puts, func(p store.Put) bool { return p.Key == kv.Key }) {
				deleted = append(deleted, kv.Key)
			}
		}
	}
	slices.Sort(deleted)
	var kvs []store.KV
	for _, key := range slices.Compact(deleted) {
		if db.get(key, db.rev).Exists() {
			kvs = append(kvs, store.KV{Key: key})
		}
	}
	for _, put := range c.Puts {
		was := db.get(put.Key, db.rev)
		create := was.Create
		if !was.Exists() {
			create = db.rev + 1
		}
		kvs = append(kvs, store.KV{Key: put.Key, Value: slices.Clone(put.Value), Create: create})
		db.attach(put.Key, put.Lease)
	}
	db.apply(kvs)
	return store.Outcome{Committed: true, Revision: db.rev}, nil
}

// attach makes a lease the only one that a key depends on; "" = none.
func (db *database) attach(key, lease string) {
	for id, l := range db.leases {
		if id != lease {
			delete(l.keys, key)
		}
	}
	if lease != "" {
		db.leases[lease].keys[key] = struct{}{}
	}
}

// apply makes the next revision of the given states.
func (db *database) apply(kvs []store.KV) {
	db.rev++
	sort.Slice(kvs, func(i, j int) bool { return kvs[i].Key < kvs[j].Key })
	for i := range kvs {
		kv := &kvs[i]
		kv.Mod = db.rev
		if _, known := db.items[kv.Key]; !known {
			at := sort.SearchStrings(db.keys, kv.Key)
			db.keys = slices.Insert(db.keys, at, kv.Key)
		}
		db.items[kv.Key] = append(db.items[kv.Key], *kv)
		if !kv.Exists() {
			db.attach(kv.Key, "")
		}
	}
	db.log = append(db.log, entry{db.rev, kvs})
	if len(db.log) >= 2*logLength {
		db.forget(db.log[logLength].rev)
	}
	close(db.changed)
	db.changed = make(chan struct{})
}

func (db *database) compact() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.forget(db.rev)
}

// forget drops all that only reads before rev need.
func (db *database) forget(rev store.Revision) {
	db.compacted = max(db.compacted, rev)
	i := sort.Search(len(db.log), func(i int) bool { return db.log[i].rev >= rev })
	db.log = slices.Clone(db.log[i:])
	db.keys = slices.DeleteFunc(db.keys, func(key string) bool {
		versions := db.items[key]
		n := sort.Search(len(versions), func(i int) bool { return versions[i].Mod > rev })
		if n > 0 && versions[n-1].Exists() {
			n-- // still what is read at rev
		}
		if versions = slices.Clone(versions[n:]); len(versions) == 0 {
			delete(db.items, key)
			return true
		}
		db.items[key] = versions
		return false
	})
}

func (db *database) grant(ttl time.Duration) *lease {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.lastLease++
	l := &lease{
		id: strconv.FormatInt(db.lastLease, 16), ttl: ttl,
		keys: map[string]struct{}{}, done: make(chan struct{}),
	}
	l.timer = time.AfterFunc(ttl, func() { db.expire(l) })
	db.leases[l.id] = l
	return l
}

// keepAlive stands for a holder that refreshes the lease.
func (db *database) keepAlive(l *lease) {
	db.mu.Lock()
	defer db.mu.Unlock()
	l.timer.Stop()
}

// stopKeepAlive stands for a holder that refreshes it no more.
func (db *database) stopKeepAlive(l *lease) {
	db.mu.Lock()
	defer db.mu.Unlock()
	l.notifyLost()
	if !l.ended {
		l.timer.Reset(l.ttl)
	}
}

func (l *lease) notifyLost() {
	if !l.lost {
		l.lost = true
		close(l.done)
	}
}

func (db *database) expire(l *lease) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.end(l)
}

func (db *database) expireAll() {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, l := range db.leases {
		db.end(l)
	}
}

// end deletes the keys of a lease; the caller holds the lock.
func (db *database) end(l *lease) {
	l.notifyLost()
	if l.ended {
		return
	}
	l.ended = true
	l.timer.Stop()
	delete(db.leases, l.id)
	var gone []store.KV
	for key := range l.keys {
		gone = append(gone, store.KV{Key: key})
	}
	if len(gone) > 0 {
		db.apply(gone)
	}
}
