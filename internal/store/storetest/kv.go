package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Values are kept byte for byte; create and mod revisions tell first and last
// write; prefixes end where they say.
func testValues(t *testing.T, b *bench) {
	binary := string([]byte{0, 255, '/', '\n'})
	first := b.put("v/a", binary, "v/b", "", "va", "no")
	second := b.put("v/b", "2", "v/c", "3")
	if second <= first {
		t.Errorf("revisions do not grow: %d, then %d", first, second)
	}
	kvs, rev, err := b.Range(b.ctx, key("v/"))
	if err != nil {
		t.Fatal(err)
	}
	want := []store.KV{
		{Key: key("v/a"), Value: []byte(binary), Create: first, Mod: first},
		{Key: key("v/b"), Value: []byte("2"), Create: first, Mod: second},
		{Key: key("v/c"), Value: []byte("3"), Create: second, Mod: second},
	}
	if diff := cmp.Diff(want, kvs); diff != "" {
		t.Error(diff)
	}
	if rev < second {
		t.Errorf("range at %d, before the last commit %d", rev, second)
	}
	b.update(func(tx store.Tx) error { tx.Delete(key("v/a")); tx.Delete(key("v/none")); return nil })
	again := b.put("v/a", "x")
	if kv, err := b.Get(b.ctx, key("v/a")); err != nil || kv.Create != again {
		t.Errorf("re-created key: %+v, %v, want create revision %d", kv, err, again)
	}
	if kv, err := b.Get(b.ctx, key("v/none")); err != nil || kv.Exists() || kv.Mod != 0 {
		t.Errorf("missing key: %+v, %v", kv, err)
	}
}

// A transaction sees its own writes in every kind of read.
func testReadOwnWrites(t *testing.T, b *bench) {
	b.put("o/a", "1", "o/b", "2", "o/c", "3")
	list := func(tx store.Tx, limit int) string {
		kvs, err := tx.Range(key("o/"), limit)
		if err != nil {
			t.Error(err)
		}
		var names []string
		for _, kv := range kvs {
			names = append(names, strings.TrimPrefix(kv.Key, key("o/"))+string(kv.Value))
		}
		return strings.Join(names, " ")
	}
	b.update(func(tx store.Tx) error {
		var got []string
		see := func() { got = append(got, list(tx, 0), list(tx, 2)) }
		see()
		tx.Delete(key("o/a"))
		tx.Put(key("o/c"), []byte("4"), nil)
		tx.Put(key("o/d"), []byte("5"), nil)
		see()
		tx.DeletePrefix(key("o/"))
		see()
		if err := tx.Create(key("o/b"), []byte("6"), nil); err != nil {
			t.Errorf("create of a key deleted in the same transaction: %v", err)
		}
		see()
		if kv, _ := tx.Get(key("o/b")); string(kv.Value) != "6" || !kv.Exists() {
			t.Errorf("get of an own write: %+v", kv)
		}
		if kv, _ := tx.Peek(key("o/c")); kv.Exists() {
			t.Errorf("peek of an own deletion: %+v", kv)
		}
		want := []string{"a1 b2 c3", "a1 b2", "b2 c4 d5", "b2 c4", "", "", "b6", "b6"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		return nil
	})
	kvs, _, err := b.Range(b.ctx, key("o/"))
	if err != nil || len(kvs) != 1 || string(kvs[0].Value) != "6" {
		t.Errorf("after the commit: %v, %v", kvs, err)
	}
}

// An error from fn is returned as it is, and nothing is written.
func testAbort(t *testing.T, b *bench) {
	b.put("a", "1")
	mine := errors.New("mine")
	if _, err := b.Update(b.ctx, func(tx store.Tx) error {
		tx.Put(key("a"), []byte("2"), nil)
		return mine
	}); err != mine { //nolint:errorlint // it must be the very error
		t.Errorf("got %v", err)
	}
	if got := b.value("a"); got != "1" {
		t.Errorf("an aborted transaction wrote %q", got)
	}
}

// All reads of a run of a transaction see one snapshot, whatever others commit
// meanwhile.
func testSnapshot(t *testing.T, b *bench) {
	other := b.open()
	b.put("s/a", "1", "s/b", "1")
	runs := 0
	b.update(func(tx store.Tx) error {
		runs++
		a, err := tx.Peek(key("s/a"))
		if err != nil {
			return err
		}
		if runs == 1 {
			if _, err := other.Update(b.ctx, func(tx store.Tx) error {
				tx.Put(key("s/a"), []byte("2"), nil)
				tx.Put(key("s/b"), []byte("2"), nil)
				tx.Put(key("s/c"), []byte("2"), nil)
				return nil
			}); err != nil {
				return err
			}
		}
		kvs, err := tx.Range(key("s/"), 0)
		if err != nil {
			return err
		}
		other, err := tx.Peek(key("s/b"))
		if err != nil {
			return err
		}
		if runs == 1 && len(kvs) != 2 || string(kvs[1].Value) != string(a.Value) || string(other.Value) != string(a.Value) {
			t.Errorf("saw a=%s, then %v, then b=%s", a.Value, kvs, other.Value)
		}
		tx.Put(key("s/d"), nil, nil)
		return nil
	})
	again := 2 // what it had peeked at is gone, unless the past can be read
	if b.Can.Past {
		again = 1
	}
	if runs != again {
		t.Errorf("a transaction that only peeked ran %d times, want %d", runs, again)
	}
	// A snapshot that is compacted away makes the transaction run again; where
	// there is no past, what it had read is looked at and still the same.
	runs = 0
	b.update(func(tx store.Tx) error {
		if _, err := tx.Get(key("s/d")); err != nil {
			return err
		}
		if runs++; runs == 1 {
			b.put("s/e", "1")
			b.Compact(t)
		}
		_, err := tx.Get(key("s/e"))
		tx.Put(key("s/f"), nil, nil)
		return err
	})
	if want := 3 - again; runs != want {
		t.Errorf("over a compaction the transaction ran %d times, want %d", runs, want)
	}
}

// The limits are what the contract says, and one more is an error that says so.
func testLimits(t *testing.T, b *bench) {
	ops := func(n int) error {
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			keys := make([]string, n)
			for i := range keys {
				keys[i] = key(fmt.Sprintf("l/%d/%d", n, i))
			}
			if err := tx.Prefetch(keys...); err != nil {
				return err
			}
			for i, k := range keys {
				switch i % 3 {
				case 0:
					if _, err := tx.Get(k); err != nil {
						return err
					}
				case 1:
					if err := tx.Create(k, []byte("1"), nil); err != nil {
						return err
					}
				case 2:
					tx.Delete(k)
				}
			}
			tx.Touch(key("scope/"))
			return tx.Observe(key("scope/"))
		})
		return err
	}
	const ours = 4 // of the scope its generation, its claim, and that none was swept; the commit key
	most := b.Can.Ops - ours
	if most < store.MinOps-ours || b.Can.Value < store.MinValue {
		t.Errorf("the store takes less than every store has to: %+v", b.Can)
	}
	if err := ops(most); err != nil {
		t.Errorf("%d operations: %v", most, err)
	}
	if err := ops(most + 2); !errors.Is(err, store.ErrTooLarge) || !errors.Is(err, model.ErrInvalid) {
		t.Errorf("%d operations: %v", most+2, err)
	}
	value := func(n int) error {
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			tx.Put(key("l/value"), make([]byte, n), nil)
			return nil
		})
		return err
	}
	if err := value(b.Can.Value); err != nil {
		t.Errorf("%d bytes: %v", b.Can.Value, err)
	}
	if err := value(b.Can.Value + 1); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("%d bytes: %v", b.Can.Value+1, err)
	}
	if _, err := b.Update(b.ctx, func(tx store.Tx) error {
		for i := range 1 + b.Can.Bytes/b.Can.Value {
			tx.Put(key(fmt.Sprintf("l/part%d", i)), make([]byte, b.Can.Value-100), nil)
		}
		return nil
	}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("more than %d bytes: %v", b.Can.Bytes, err)
	}
	// Any number of keys under one prefix is one operation.
	for i := range 5 {
		var pairs []string
		for j := range store.MinOps - 1 {
			pairs = append(pairs, fmt.Sprintf("l/many/%d-%d", i, j), "1")
		}
		b.put(pairs...)
	}
	b.update(func(tx store.Tx) error {
		tx.DeletePrefix(key("l/many/"))
		tx.Put(key("l/many/2-2"), []byte("kept"), nil)
		tx.Put(key("l/many/"), []byte("kept"), nil)
		return nil
	})
	kvs, _, err := b.Range(b.ctx, key("l/many/"))
	if err != nil || len(kvs) != 2 {
		t.Errorf("after deletion of a prefix around two puts: %v, %v", kvs, err)
	}
}

// CommitRevision is the revision of the last Update; a transaction that wrote nothing
// returns it too.
func testCommitRevision(t *testing.T, b *bench) {
	if rev, err := b.CommitRevision(b.ctx); err != nil || rev != 0 {
		t.Errorf("before any commit: %d, %v", rev, err)
	}
	other := b.open()
	for range 3 {
		want := b.put("c", "1")
		if got, err := other.CommitRevision(b.ctx); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
		got, err := other.Update(b.ctx, func(tx store.Tx) error { _, err := tx.Get(key("c")); return err })
		if err != nil || got != want {
			t.Errorf("transaction without a write: %d, %v, want %d", got, err, want)
		}
	}
}

// A context that ends ends the call with its error, also amid retries.
func testCancel(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Update(ctx, func(tx store.Tx) error { tx.Put(key("x"), nil, nil); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("update: %v", err)
	}
	if _, err := b.Get(ctx, key("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	if _, _, err := b.Range(ctx, key("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("range: %v", err)
	}
	ctx, cancel = context.WithCancel(b.ctx)
	other := b.open()
	runs := 0
	_, err := b.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.Get(key("hot")); err != nil {
			return err
		}
		if runs++; runs == 5 {
			cancel()
		}
		_, err := other.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("hot"), fmt.Append(nil, runs), nil); return nil })
		tx.Put(key("x"), nil, nil)
		return err
	})
	if !errors.Is(err, context.Canceled) || runs != 5 {
		t.Errorf("cancelled in run 5: %v after %d runs", err, runs)
	}
	// Without a cancellation the retries are bounded.
	_, err = b.Update(b.ctx, func(tx store.Tx) error {
		if _, err := tx.Get(key("hot")); err != nil {
			return err
		}
		runs++
		_, err := other.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("hot"), fmt.Append(nil, runs), nil); return nil })
		tx.Put(key("x"), nil, nil)
		return err
	})
	if !errors.Is(err, model.ErrConflict) {
		t.Errorf("for ever in conflict: %v after %d runs", err, runs)
	}
}

// A store that is away is ErrUnavailable within bounded time, and works again
// when it is back.
func testUnavailable(t *testing.T, b *bench) {
	b.put("u", "1")
	b.Break(t)
	began := time.Now()
	_, uerr := b.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("u"), []byte("2"), nil); return nil })
	_, gerr := b.Get(b.ctx, key("u"))
	_, serr := b.NewSession(b.ctx, b.TTL)
	for what, err := range map[string]error{"update": uerr, "get": gerr, "session": serr} {
		if !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s with the store away: %v", what, err)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("three calls took %s to fail", took)
	}
	b.Heal(t)
	for {
		if _, err := b.Get(b.ctx, key("u")); err == nil {
			break
		} else if b.ctx.Err() != nil {
			t.Fatalf("after it came back: %v", err)
		}
	}
	b.put("u", "3")
	if got := b.value("u"); got != "3" {
		t.Errorf("after it came back: %q", got)
	}
}

// A follower's view is as fresh as a linearizable read.
func testFollower(t *testing.T, b *bench) {
	other := b.open()
	view := map[string]string{}
	f := store.NewFollower(b, []string{key("f/")}, func(batch store.Batch) error {
		for _, e := range batch.Events {
			view[e.KV.Key] = string(e.KV.Value)
		}
		return nil
	})
	if err := f.State(); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("before it runs: %v", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	for i := range 50 {
		want := strconv.Itoa(i)
		if _, err := other.Update(b.ctx, func(tx store.Tx) error {
			tx.Put(key("f/x"), []byte(want), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		// What does not touch the view must not hold it up either.
		if _, err := other.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("g"), []byte(want), nil); return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Fresh(b.ctx); err != nil {
			t.Fatal(err)
		}
		// There are no writes now, so apply does not run.
		if got := view[key("f/x")]; got != want {
			t.Fatalf("stale view: %q, want %q", got, want)
		}
	}
	short, stop := context.WithTimeout(b.ctx, 20*time.Millisecond)
	defer stop()
	if err := f.WaitFor(short, f.Revision()+1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for what does not come: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run ended with %v", err)
	}
	if err := f.State(); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("after its end: %v", err)
	}
}

// follow runs a follower for the length of the test.
func (b *bench) follow(f *store.Follower) {
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Run(ctx) // ends with the context
	}()
	b.t.Cleanup(func() { cancel(); <-ended })
}

// A follower's Update reads from memory, yet neither fails, succeeds nor reads
// on what is outdated.
func testCachedReads(t *testing.T, b *bench) {
	other := b.open()
	held := make(chan struct{}, 100) // what apply may let pass
	f := store.NewFollower(b, []string{key("n/")}, func(store.Batch) error { <-held; return nil })
	first := b.put("n/a", "1")
	held <- struct{}{}
	b.follow(f)
	defer close(held) // before the follower is waited for
	if err := f.WaitFor(b.ctx, first); err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // from the second on the follower is behind
		want := strconv.Itoa(i)
		if _, err := other.Update(b.ctx, func(tx store.Tx) error {
			tx.Put(key("n/a"), []byte(want), nil)
			tx.Put(key("n/"+want), []byte(want), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var got []string
		if _, err := f.Update(b.ctx, func(tx store.Tx) error {
			got = nil
			if err := tx.Prefetch(key("n/a"), key("n/"+want), key("elsewhere")); err != nil {
				return err
			}
			for _, name := range []string{"n/a", "n/" + want} {
				kv, err := tx.Get(key(name))
				if err != nil {
					return err
				}
				got = append(got, string(kv.Value))
			}
			tx.Put(key("copy"), []byte(got[0]), nil)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want, want}, got); diff != "" {
			t.Error(diff)
		}
		if err := mustExist(b.ctx, f, "n/"+want); err != nil {
			t.Errorf("failed on what is outdated: %v", err)
		}
		_, err := f.Update(b.ctx, func(tx store.Tx) error { return tx.Create(key("n/"+want), nil, nil) })
		if !errors.Is(err, model.ErrExists) {
			t.Errorf("create of what exists: %v", err)
		}
	}
	if err := mustExist(b.ctx, f, "n/none"); !errors.Is(err, model.ErrNotFound) {
		t.Errorf("missing key: %v", err)
	}
}

func mustExist(ctx context.Context, f *store.Follower, name string) error {
	_, err := f.Update(ctx, func(tx store.Tx) error {
		kv, err := tx.Get(key(name))
		if err == nil && !kv.Exists() {
			return model.ErrNotFound
		}
		return err
	})
	return err
}
