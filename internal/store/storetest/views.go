package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// replica is a view of numbers by key, as a netmaster has one, that is always
// somewhat behind.
type replica struct {
	*store.Follower
	mu   sync.Mutex
	view map[string]int64
}

// slow is a connection whose answers to Position are on their way until
// two more writes have been acknowledged, or for a moment.
type slow struct {
	cachedStore
	acknowledged *atomic.Int64
}

func (s slow) Position(ctx context.Context) (last, now store.Revision, err error) {
	last, now, err = s.cachedStore.Position(ctx)
	await(s.acknowledged, s.acknowledged.Load()+2, 5*time.Millisecond)
	return last, now, err
}

// await waits until n is at least as much, or for a while.
func await(n *atomic.Int64, least int64, most time.Duration) {
	tick := time.NewTicker(50 * time.Microsecond)
	defer tick.Stop()
	for end := time.Now().Add(most); n.Load() < least && time.Now().Before(end); {
		<-tick.C
	}
}

func (b *bench) replica(acknowledged *atomic.Int64) *replica {
	conn, ok := b.open().(cachedStore)
	if !ok {
		b.t.Skip("it does not read from memory")
	}
	r := &replica{view: map[string]int64{}}
	r.Follower = store.NewFollower(slow{conn, acknowledged}, []string{key("f/")}, func(batch store.Batch) error {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-b.ctx.Done():
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range batch.Events {
			n, err := strconv.ParseInt(string(e.KV.Value), 10, 64)
			if err != nil {
				return err
			}
			r.view[e.KV.Key] = n
		}
		return nil
	})
	b.follow(r.Follower)
	return r
}

// A read that begins after a write was acknowledged sees it, at every replica,
// however many readers share a read of the store, and what one reader has seen
// a later one sees too.
func testFreshReads(t *testing.T, b *bench) {
	var acknowledged atomic.Int64
	replicas := []*replica{b.replica(&acknowledged), b.replica(&acknowledged)}
	const keys, writes, readers = 3, 40, 8
	var done, seen [keys]atomic.Int64
	name := func(k int) string { return key(fmt.Sprint("f/", k)) }
	g, ctx := errgroup.WithContext(b.ctx)
	for k := range keys {
		g.Go(func() error {
			for i := int64(1); i <= writes; i++ {
				if _, err := replicas[k%2].Update(ctx, func(tx store.Tx) error {
					tx.Put(name(k), strconv.AppendInt(nil, i, 10), nil)
					return nil
				}); err != nil {
					return err
				}
				done[k].Store(i)
				acknowledged.Add(1)
			}
			return nil
		})
	}
	read := func(r *replica) error {
		var least [keys]int64
		for k := range keys {
			least[k] = max(done[k].Load(), seen[k].Load())
		}
		if _, err := r.Fresh(ctx); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for k := range keys {
			got := r.view[name(k)]
			if got < least[k] {
				return fmt.Errorf("a read of %s shows %d although %d was there before it began", name(k), got, least[k])
			}
			for old := seen[k].Load(); got > old && !seen[k].CompareAndSwap(old, got); old = seen[k].Load() {
			}
		}
		return nil
	}
	for n := range int64(readers * len(replicas)) {
		g.Go(func() error { // each reads when something has just been acknowledged
			for next := n; next < keys*writes; next += readers {
				await(&acknowledged, next, time.Second)
				if err := read(replicas[n%2]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// unread is a connection on which reading single keys counts.
type unread struct {
	cachedStore
	keys *atomic.Int64
}

type cachedStore interface {
	store.Store
	store.CachedUpdater
	store.Positioner
	store.Backend
}

func (u unread) ReadKeys(ctx context.Context, at store.Revision, keys []string) ([]store.KV, store.Revision, error) {
	for _, k := range keys {
		if k != store.CommitKey {
			u.keys.Add(1)
		}
	}
	return u.cachedStore.ReadKeys(ctx, at, keys)
}

func (u unread) UpdateCached(ctx context.Context, near store.CachedReader, fn func(store.Tx) error) (store.Revision, error) {
	return engine.Engine{Backend: u}.UpdateCached(ctx, near, fn)
}

func (u unread) UpdateFresh(ctx context.Context, near store.CachedReader, last store.Revision, fn func(store.Tx) error) (store.Revision, error) {
	return engine.Engine{Backend: u}.UpdateFresh(ctx, near, last, fn)
}

// A transaction that reads in steps reads one snapshot, from memory but for what
// others have changed since its first step; and after Fresh its outcome counts
// without a second run, be it an error or that nothing was written.
func testCachedReadSteps(t *testing.T, b *bench) {
	conn, ok := b.open().(cachedStore)
	if !ok {
		t.Skip("it does not read from memory")
	}
	var read atomic.Int64
	f := store.NewFollower(unread{conn, &read}, []string{key("n/")}, func(store.Batch) error { return nil })
	b.follow(f)
	for _, name := range []string{"same", "changed", "deleted", "again"} {
		b.put("n/"+name, "1")
	}
	meanwhile := func() store.Revision {
		rev, err := b.Update(b.ctx, func(tx store.Tx) error {
			tx.Put(key("n/changed"), []byte("2"), nil)
			tx.Put(key("n/created"), []byte("2"), nil)
			tx.Delete(key("n/deleted"))
			tx.Delete(key("n/again"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		b.put("n/again", "2")
		return rev + 1
	}
	want := map[string]string{"same": "1", "changed": "1", "deleted": "1", "again": "1", "created": "", "never": ""}
	if !b.Can.Past { // nothing of this has been read by then, so it is one snapshot too
		want = map[string]string{"same": "1", "changed": "2", "deleted": "", "again": "2", "created": "2", "never": ""}
	}
	refused := model.Errorf(model.ErrInvalid, "as wished")
	runs := 0
	_, err := f.UpdateFresh(b.ctx, func(tx store.Tx) error {
		runs++
		if _, err := tx.Get(key("n/first")); err != nil {
			return err
		}
		if err := f.WaitFor(b.ctx, meanwhile()); err != nil {
			return err
		}
		for name, value := range want {
			kv, err := tx.Get(key("n/" + name))
			if err != nil {
				return err
			}
			if string(kv.Value) != value {
				t.Errorf("%s: %q, want %q", name, kv.Value, value)
			}
		}
		return refused
	})
	if !errors.Is(err, refused) || runs != 1 {
		t.Errorf("%d runs, error %v", runs, err)
	}
	if n := read.Load(); b.Can.Past && n != 4 { // what has changed
		t.Errorf("%d keys were read from the store, want 4 of the 7", n)
	}
	rev, err := f.UpdateFresh(b.ctx, func(tx store.Tx) error {
		runs++
		kv, err := tx.Get(key("n/changed"))
		if string(kv.Value) != "2" {
			t.Errorf("a later transaction reads %q", kv.Value)
		}
		return err
	})
	if last, lerr := b.CommitRevision(b.ctx); err != nil || lerr != nil || rev != last || runs != 2 {
		t.Errorf("nothing written: revision %d of %d, %d runs, errors %v, %v", rev, last, runs, err, lerr)
	}
}
