package storetest

import (
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/store"
)

// A transaction's ranges are of its snapshot, in their values as well as in their keys,
// and what it has deleted itself takes no place among the first of them.
func testRanges(t *testing.T, b *bench) {
	b.put("p/a", "1", "p/b", "2", "p/c", "3")
	b.update(func(tx store.Tx) error {
		tx.Delete(key("p/a"))
		kvs, err := tx.Range(key("p/"), 2)
		if len(kvs) != 2 || kvs[0].Key != key("p/b") || kvs[1].Key != key("p/c") {
			t.Errorf("the first two of those left: %v", kvs)
		}
		return err
	})
	other := b.open()
	b.put("r/a", "1", "t", "1")
	b.update(func(tx store.Tx) error {
		kvs, err := tx.Range(key("r/"), 0)
		if err != nil {
			return err
		}
		if string(kvs[0].Value) == "1" {
			if _, err := other.Update(b.ctx, func(tx store.Tx) error {
				tx.Put(key("r/a"), []byte("2"), nil)
				tx.Put(key("t"), []byte("2"), nil)
				return nil
			}); err != nil {
				return err
			}
		}
		kv, err := tx.Peek(key("t"))
		if err == nil && string(kv.Value) != string(kvs[0].Value) {
			t.Errorf("saw %s in a range, then %s", kvs[0].Value, kv.Value)
		}
		return err
	})
}

// What is prefetched of scopes is the snapshot's, holds for their parts where it is all
// there is, and is no more protected than what is read one by one: what comes into an
// observed scope meanwhile has the transaction run again.
func testPrefetchScopes(t *testing.T, b *bench) {
	b.put("s/a", "1", "s/b/c", "2", "s/d", "3", "q/b/c", "4")
	other := b.open()
	runs := 0
	b.update(func(tx store.Tx) error {
		runs++
		tx.Delete(key("s/a"))
		if err := tx.PrefetchScopes(2, key("s/"), key("q/"), key("none/")); err != nil {
			return err
		}
		if runs == 1 {
			if _, err := other.Update(b.ctx, func(tx store.Tx) error {
				tx.Put(key("none/x"), []byte("5"), nil)
				tx.Put(key("q/b/d"), []byte("5"), nil)
				tx.Touch(key("none/"))
				return nil
			}); err != nil {
				return err
			}
		}
		if err := tx.Observe(key("none/")); err != nil {
			return err
		}
		var text strings.Builder
		for _, r := range []struct {
			prefix string
			limit  int
		}{{"s/", 1}, {"s/", 2}, {"s/", 0}, {"s/b/", 0}, {"q/", 0}, {"q/b/", 1}, {"none/", 0}} {
			kvs, err := tx.Range(key(r.prefix), r.limit)
			if err != nil {
				return err
			}
			for _, kv := range kvs {
				text.Write(kv.Value)
			}
			text.WriteByte(',')
		}
		got := text.String()
		before, after := "2,23,23,2,4,4,,", "2,23,23,2,45,4,5,"
		if got != after && (runs > 1 || got != before) {
			t.Errorf("run %d: ranges of what was prefetched: %s, want %s", runs, got, after)
		}
		tx.Put(key("t"), []byte(got), nil)
		return nil
	})
	if kv, err := other.Get(b.ctx, key("t")); err != nil || string(kv.Value) != "2,23,23,2,45,4,5," {
		t.Errorf("committed after %d runs: %s, %v", runs, kv.Value, err)
	}
}
