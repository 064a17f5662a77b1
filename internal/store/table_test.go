package store

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

type fruit struct {
	Tree  string `json:"tree"`
	Name  string `json:"name"`
	Grams int    `json:"grams,omitempty"`
}

type fruitKey struct{ Tree, Name string }

func fruits(tree string) string { return Root + "state/tenant/" + Segment(tree) + "/fruits/" }

var fruitTable = NewTable(TableSpec[fruitKey, fruit]{
	Noun: "fruit", Version: 2,
	KeyOf: func(f fruit) fruitKey { return fruitKey{f.Tree, f.Name} },
	Show:  func(k fruitKey) string { return k.Tree + ":" + k.Name },
	Scope: func(k fruitKey) string { return fruits(k.Tree) },
	Name:  func(k fruitKey) string { return Segment(k.Name) },
})

// Rows are created once, found, changed, listed in key order and deleted.
func TestTableRows(t *testing.T) {
	st := NewMemory()
	ctx := t.Context()
	update := func(fn func(tx Tx) error) error {
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
	must(update(func(tx Tx) error {
		return errors.Join(
			fruitTable.Create(tx, fruit{"oak", "b/c", 1}),
			fruitTable.Create(tx, fruit{"oak", "a", 2}),
			fruitTable.Create(tx, fruit{"elm", "a", 3}))
	}))
	err := update(func(tx Tx) error { return fruitTable.Create(tx, fruit{"oak", "a", 9}) })
	if want := `fruit "oak:a" exists already`; !errors.Is(err, model.ErrExists) || err.Error() != want {
		t.Errorf("second create: got %v, want %s", err, want)
	}
	must(update(func(tx Tx) error {
		f, err := fruitTable.Get(tx, fruitKey{"oak", "a"})
		f.Grams++
		return errors.Join(err, fruitTable.Put(tx, f))
	}))
	must(update(func(tx Tx) error {
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
	err = update(func(tx Tx) error { _, err := fruitTable.Get(tx, fruitKey{"oak", "a"}); return err })
	if !errors.Is(err, model.ErrNotFound) {
		t.Errorf("get of a deleted row: %v", err)
	}
	must(update(func(tx Tx) error { fruitTable.DeleteScope(tx, fruits("oak")); return nil }))
	must(update(func(tx Tx) error {
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
