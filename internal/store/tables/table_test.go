package tables

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

type fruit struct {
	Tree  string `json:"tree"`
	Name  string `json:"name"`
	Grams int    `json:"grams,omitempty"`
}

type fruitKey struct{ Tree, Name string }

func fruits(tree string) string {
	return store.Root + "state/tenant/" + store.Segment(tree) + "/fruits/"
}

var fruitTable = NewTable(TableSpec[fruitKey, fruit]{
	Noun: "fruit", Version: 2,
	KeyOf: func(f fruit) fruitKey { return fruitKey{f.Tree, f.Name} },
	Show:  func(k fruitKey) string { return k.Tree + ":" + k.Name },
	Scope: func(k fruitKey) string { return fruits(k.Tree) },
	Name:  func(k fruitKey) string { return store.Segment(k.Name) },
})

// Rows are created once, found, changed, listed in key order and deleted.
func TestRowsAreCreatedOnceAndListedInOrder(t *testing.T) {
	st := memory.New()
	ctx := t.Context()
	update := func(fn func(tx store.Tx) error) error {
		t.Helper()
		_, err := st.Update(ctx, fn)
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(update(func(tx store.Tx) error {
		return errors.Join(
			fruitTable.Create(tx, fruit{"oak", "b/c", 1}),
			fruitTable.Create(tx, fruit{"oak", "a", 2}),
			fruitTable.Create(tx, fruit{"elm", "a", 3}))
	}))
	err := update(func(tx store.Tx) error { return fruitTable.Create(tx, fruit{"oak", "a", 9}) })
	if want := `fruit "oak:a" exists already`; !errors.Is(err, model.ErrExists) || err.Error() != want {
		t.Errorf("second create: got %v, want %s", err, want)
	}
	must(update(func(tx store.Tx) error {
		f, err := fruitTable.Get(tx, fruitKey{"oak", "a"})
		f.Grams++
		return errors.Join(err, fruitTable.Put(tx, f))
	}))
	must(update(func(tx store.Tx) error {
		got, err := fruitTable.List(tx, fruits("oak"))
		if diff := cmp.Diff([]fruit{{"oak", "a", 3}, {"oak", "b/c", 1}}, got); diff != "" {
			t.Error(diff)
		}
		fruitTable.Delete(tx, fruitKey{"oak", "a"})
		rest, err2 := fruitTable.List(tx, fruits("oak"))
		if diff := cmp.Diff([]fruit{{"oak", "b/c", 1}}, rest); diff != "" {
			t.Error(diff)
		}
		return errors.Join(err, err2)
	}))
	err = update(func(tx store.Tx) error { _, err := fruitTable.Get(tx, fruitKey{"oak", "a"}); return err })
	if !errors.Is(err, model.ErrNotFound) {
		t.Errorf("get of a deleted row: %v", err)
	}
	must(update(func(tx store.Tx) error { fruitTable.DeleteScope(tx, fruits("oak")); return nil }))
	must(update(func(tx store.Tx) error {
		if _, any, err := fruitTable.Any(tx, fruits("oak")); any || err != nil {
			t.Errorf("oak still has fruits: %v", err)
		}
		_, any, err := fruitTable.Any(tx, fruits("elm"))
		if !any {
			t.Error("elm lost its fruit")
		}
		return err
	}))
}

// A table neither loses a newer record nor refuses to read it.
func TestNewerRecordsAreReadWhole(t *testing.T) {
	st := memory.New()
	k := fruitKey{"oak", "acorn"}
	future := `{"v":3,"d":{"tree":"oak","name":"acorn","grams":7,"colour":"brown"}}`
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		tx.Put(fruitTable.Key(k), []byte(future), nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err := st.Update(t.Context(), func(tx store.Tx) error {
		row, err := fruitTable.Find(tx, k)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(fruit{"oak", "acorn", 7}, row.Value); diff != "" || row.Version != 3 {
			t.Error(row.Version, diff)
		}
		return fruitTable.Put(tx, row.Value)
	})
	if want := `write fruit "oak:acorn": ` + store.ErrNewerRecord.Error(); !errors.Is(err, store.ErrNewerRecord) || err.Error() != want {
		t.Errorf("put: %v, want %s", err, want)
	}
	if kv, _ := st.Get(t.Context(), fruitTable.Key(k)); string(kv.Value) != future {
		t.Errorf("the record became %s", kv.Value)
	}
}

// TestRowOfAnotherKeyIsUnreadable: a record that somebody has put at another one's key is
// taken for neither: when it goes, its end would be told of the key alone.
func TestRowOfAnotherKeyIsUnreadable(t *testing.T) {
	value, err := store.EncodeRecord(2, fruit{"elm", "a", 3})
	if err != nil {
		t.Fatal(err)
	}
	for key, ok := range map[string]bool{fruits("elm") + "a": true, fruits("oak") + "a": false} {
		if _, err := fruitTable.Decode(store.KV{Key: key, Value: value, Create: 1, Mod: 1}); (err == nil) != ok {
			t.Errorf("at %s: %v", key, err)
		}
	}
}
