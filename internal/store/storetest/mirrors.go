package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/store"
)

// A mirror delivers one snapshot, then whole transactions in order, while many
// write: every batch has both halves of its pair, and replaying gives the store.
func testMirrorTransactions(t *testing.T, b *bench) {
	b.put("m/0/left", "before", "m/0/right", "before")
	w := b.mirror(b.Store, []string{key("m/")})
	var g errgroup.Group
	for c := range 4 {
		st := b.open()
		g.Go(func() error {
			for n := range 25 {
				left, right := fmt.Sprintf("m/%d/left", c), fmt.Sprintf("m/%d/right", c)
				if _, err := st.Update(b.ctx, func(tx store.Tx) error {
					if n%5 == 4 {
						tx.DeletePrefix(key(fmt.Sprintf("m/%d/", c)))
						return nil
					}
					tx.Put(key(left), fmt.Append(nil, n), nil)
					tx.Put(key(right), fmt.Append(nil, n), nil)
					return nil
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	last := b.put("m/end/left", "1", "m/end/right", "1")
	batches := w.reached(last)
	now := map[string]string{}
	for i, batch := range batches {
		if batch.Snapshot != (i == 0) {
			t.Errorf("batch %d of %d: snapshot is %v", i, len(batches), batch.Snapshot)
		}
		if i > 0 && batch.Revision <= batches[i-1].Revision {
			t.Errorf("batch %d is of revision %d after %d", i, batch.Revision, batches[i-1].Revision)
		}
		if i > 0 && b.Can.Whole && len(batch.Events) != 2 {
			t.Errorf("batch %d is no transaction: %v", i, render([]store.Batch{batch}))
		}
		for _, e := range batch.Events {
			was, had := now[e.KV.Key]
			if had != (e.Prev != nil) || had && was != string(e.Prev) {
				t.Errorf("%s: previous value %q, was %q", e.KV.Key, e.Prev, was)
			}
			if now[e.KV.Key] = string(e.KV.Value); e.Deleted() {
				delete(now, e.KV.Key)
			}
		}
		for c := range 4 {
			left, right := now[key(fmt.Sprintf("m/%d/left", c))], now[key(fmt.Sprintf("m/%d/right", c))]
			if left != right {
				t.Errorf("batch %d is torn: left is %q, right is %q: %v", i, left, right, render([]store.Batch{batch}))
			}
		}
	}
	kvs, _, err := b.Range(b.ctx, key("m/"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, kv := range kvs {
		want[kv.Key] = string(kv.Value)
	}
	if diff := cmp.Diff(want, now); diff != "" {
		t.Error(diff)
	}
}

// A deletion has the revision of the commit that deleted, also when a mirror reads it with
// later commits.
func testMirrorDeletions(t *testing.T, b *bench) {
	b.put("d/x", "1")
	ctx, cancel := context.WithCancel(b.ctx)
	listed, committed, got := make(chan struct{}), make(chan struct{}), make(chan store.Revision, 1)
	var g errgroup.Group
	g.Go(func() error {
		return b.Mirror(ctx, []string{key("d/")}, func(batch store.Batch) error {
			if batch.Snapshot {
				close(listed)
				<-committed
			}
			for _, e := range batch.Events {
				if e.Deleted() {
					got <- e.KV.Mod
				}
			}
			return nil
		})
	})
	<-listed
	deleted := b.update(func(tx store.Tx) error {
		tx.Delete(key("d/x"))
		return nil
	})
	b.put("elsewhere", "1")
	b.put("d/y", "1")
	close(committed)
	select {
	case rev := <-got:
		if rev != deleted {
			t.Errorf("the deletion at revision %d is delivered as of revision %d", deleted, rev)
		}
	case <-ctx.Done():
		t.Error("the deletion is not delivered")
	}
	cancel()
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// One transaction over several prefixes is one batch; other keys and the
// store's own are not delivered; FollowCommits reaches every commit.
func testMirrorPrefixes(t *testing.T, b *bench) {
	b.put("global/a", "1", "tenant/blue/a", "1", "tenant/red/a", "1", "alloc/a", "1")
	w := b.mirror(b.Store, []string{key("tenant/blue/"), key("global/"), key("global/sub/")})
	all := b.mirror(b.Store, []string{key("")}, store.FollowCommits())
	none := b.mirror(b.Store, nil, store.FollowCommits())
	b.put("global/a", "2", "tenant/blue/b", "2", "tenant/red/a", "2")
	b.put("tenant/red/a", "3", "alloc/a", "3")
	quiet := b.update(func(tx store.Tx) error { tx.Touch(key("x/")); return nil })
	last := b.put("tenant/blue/a", "4", "global/sub/x", "4", "alloc/a", "4")
	w.reached(last)
	all.reached(last)
	none.reached(last)
	w.stop()
	want := []string{
		"snapshot global/a=1 tenant/blue/a=1",
		"global/a=2(1) tenant/blue/b=2",
		"global/sub/x=4 tenant/blue/a=4(1)",
	}
	if diff := cmp.Diff(want, final(t, w, want)); diff != "" {
		t.Error(diff)
	}
	seen := false
	for _, batch := range all.reached(last) {
		seen = seen || batch.Revision == quiet && len(batch.Events) == 0 || (batch.Snapshot || !b.Can.Whole) && batch.Revision >= quiet
	}
	if !seen {
		t.Error("a mirror missed a commit that touched none of its rows")
	}
}

// final returns what a mirror delivered; a snapshot taken late may have
// swallowed the first batches, which is no fault: then only the result counts.
func final(t *testing.T, w *watcher, want []string) []string {
	t.Helper()
	got := render(w.batches)
	if len(got) == len(want) {
		return got
	}
	now, then := map[string]string{}, map[string]string{}
	for _, e := range w.batches {
		for _, e := range e.Events {
			now[e.KV.Key] = string(e.KV.Value)
		}
	}
	kvs, _, err := w.b.Range(w.b.ctx, key(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kvs {
		if _, ok := now[kv.Key]; ok {
			then[kv.Key] = string(kv.Value)
		}
	}
	if diff := cmp.Diff(then, now); diff != "" {
		t.Error(diff)
	}
	return want
}

// A mirror that missed revisions which were compacted meanwhile delivers the
// difference, deletions included, as one batch.
func testMirrorGap(t *testing.T, b *bench) {
	writer := b.writer()
	rev := b.put("g/changed", "1", "g/deleted", "1", "g/same", "1", "g/recreated", "1")
	w := b.mirror(b.Store, []string{key("g/")})
	w.reached(rev)
	w.until("following", func(_ []store.Batch, states []error) bool { return len(states) > 0 && states[len(states)-1] == nil })
	b.Break(t)
	w.until("noticing the loss", func(_ []store.Batch, states []error) bool { return states[len(states)-1] != nil })
	for _, fn := range []func(store.Tx){
		func(tx store.Tx) { tx.Delete(key("g/deleted")); tx.Delete(key("g/recreated")) },
		func(tx store.Tx) { tx.Put(key("g/changed"), []byte("2"), nil); tx.Put(key("g/new"), []byte("2"), nil) },
		func(tx store.Tx) { tx.Put(key("g/recreated"), []byte("1"), nil) },
		func(tx store.Tx) { tx.Put(key("g/shortlived"), []byte("2"), nil) },
		func(tx store.Tx) { tx.Delete(key("g/shortlived")) },
	} {
		var err error
		if rev, err = writer.Update(b.ctx, func(tx store.Tx) error { fn(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	b.Compact(t)
	b.Heal(t)
	w.reached(rev)
	w.until("following again", func(_ []store.Batch, states []error) bool { return states[len(states)-1] == nil })
	last, err := writer.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("g/same"), []byte("3"), nil); return nil })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"snapshot g/changed=1 g/deleted=1 g/recreated=1 g/same=1",
		"g/changed=2(1) -g/deleted(1) g/new=2 g/recreated=1(1)",
		"g/same=3(1)",
	}
	batches := w.reached(last)
	if diff := cmp.Diff(want, render(batches)); diff != "" {
		t.Error(diff)
	}
	notOlder(t, batches)
}

// A mirror whose connection broke catches up without a gap in what it knows.
func testMirrorReconnect(t *testing.T, b *bench) {
	writer := b.writer()
	w := b.mirror(b.Store, []string{key("r/")})
	var last store.Revision
	for i := range 3 {
		for range 3 {
			var err error
			if last, err = writer.Update(b.ctx, func(tx store.Tx) error {
				tx.Put(key("r/x"), fmt.Append(nil, i), nil)
				tx.Put(key(fmt.Sprintf("r/%d", i)), nil, nil)
				tx.Delete(key(fmt.Sprintf("r/%d", i-1)))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		w.reached(last)
		b.Break(t)
		w.until("noticing the loss", func(_ []store.Batch, states []error) bool {
			return len(states) > 0 && states[len(states)-1] != nil
		})
		b.Heal(t)
		w.until("following", func(_ []store.Batch, states []error) bool { return states[len(states)-1] == nil })
	}
	now := map[string]string{}
	batches := w.reached(last)
	notOlder(t, batches)
	for i, batch := range batches {
		if batch.Snapshot != (i == 0) {
			t.Errorf("batch %d: snapshot is %v", i, batch.Snapshot)
		}
		for _, e := range batch.Events {
			if now[e.KV.Key] = string(e.KV.Value); e.Deleted() {
				delete(now, e.KV.Key)
			}
		}
	}
	if diff := cmp.Diff(map[string]string{key("r/x"): "2", key("r/2"): ""}, now); diff != "" {
		t.Error(diff)
	}
}

// A mirror ends with its consumer's error, or the context's, also while the
// store is away.
func testMirrorReturnsErrors(t *testing.T, b *bench) {
	mine := errors.New("mine")
	for _, at := range []int{0, 1} {
		n := 0
		err := b.Mirror(b.ctx, []string{key("")}, func(store.Batch) error {
			if n++; n > at {
				return mine
			}
			b.put("e/x", strconv.Itoa(n))
			return nil
		})
		if err != mine { //nolint:errorlint // it must be the very error
			t.Errorf("failing at batch %d: %v", at, err)
		}
	}
	w := b.mirror(b.Store, []string{key("e/")})
	w.until("snapshot", func(batches []store.Batch, _ []error) bool { return len(batches) > 0 })
	w.stop()
	if !errors.Is(w.err, context.Canceled) {
		t.Errorf("cancelled: %v", w.err)
	}
	b.Break(t)
	w = b.mirror(b.Store, []string{key("e/")})
	w.until("state", func(_ []store.Batch, states []error) bool { return len(states) > 0 })
	w.stop()
	if !errors.Is(w.err, context.Canceled) || len(w.batches) > 0 {
		t.Errorf("cancelled with the store away: %v after %d batches", w.err, len(w.batches))
	}
	b.Heal(t)
}
