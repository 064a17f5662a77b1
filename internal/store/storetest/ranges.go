package storetest

import (
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
