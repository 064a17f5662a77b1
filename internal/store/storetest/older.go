package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/store"
)

// notOlder checks that no list was taken for one of a store that went back.
func notOlder(t *testing.T, batches []store.Batch) {
	t.Helper()
	for i, b := range batches {
		if b.Older || i > 0 && b.Revision < batches[i-1].Revision {
			t.Errorf("batch %d says that the store went back: %+v", i, b)
		}
	}
}

// When a backup is put back under a mirror, the mirror's next list tells: by a lower
// revision, or, where the store has a journal, however far revisions go on. So does the
// first list of a mirror whose consumer knows a commit that is lost, and no other.
func testMirrorOlder(t *testing.T, b *bench) {
	if b.Backup == nil {
		t.Skip("no backup can be put back")
	}
	rev := b.put("o/kept", "1")
	w := b.mirror(b.Store, []string{key("o/")})
	kept := w.reached(rev)
	restore := b.Backup(t)
	for range 3 {
		rev = b.put("o/lost", "1")
	}
	n := len(w.reached(rev))
	restore()
	for {
		var err error
		if rev, err = b.Update(b.ctx, func(tx store.Tx) error { tx.Put(key("o/after"), []byte("1"), nil); return nil }); err == nil {
			break
		}
		if b.ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	now := map[string]string{}
	batches := w.until("the older state", func(batches []store.Batch, _ []error) bool {
		clear(now)
		for _, batch := range batches {
			for _, e := range batch.Events {
				if now[e.KV.Key] = string(e.KV.Value); e.Deleted() {
					delete(now, e.KV.Key)
				}
			}
		}
		return len(batches) > n && now[key("o/after")] != ""
	})
	if diff := cmp.Diff(map[string]string{key("o/kept"): "1", key("o/after"): "1"}, now); diff != "" {
		t.Error(diff)
	}
	before, list := batches[n-1], batches[n]
	if !list.Listed || !list.Older && list.Revision >= before.Revision {
		t.Errorf("an older state is told as %+v, after %+v", list, before)
	}
	notOlder(t, batches[:n])
	notOlder(t, batches[n+1:])
	if before.Place == "" {
		return
	}
	for _, tt := range []struct {
		what, since string
		older       bool
	}{
		{"what is lost", before.Place, true},
		{"what was kept", kept[0].Place, false},
		{"what is there", w.reached(rev)[len(batches)-1].Place, false},
		{"nothing", "", false},
		{"no place", "x", false},
	} {
		first := b.mirror(b.Store, []string{key("o/")}, store.Since(func() string { return tt.since })).reached(rev)[0]
		if first.Older != tt.older || !first.Snapshot {
			t.Errorf("who knows of %s is told %+v", tt.what, first)
		}
	}
}
