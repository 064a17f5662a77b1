package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

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

// 16 creators and one lister in one scope all make progress with bounded
// retries (design.md, "Phantoms"): the lister is made to lose three times, then
// its claim holds the creators off.
func TestCreatorsAndListerProgress(t *testing.T) {
	st := NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var creators errgroup.Group
	var created [16]atomic.Int64
	progress := func() (sum, least int64) {
		least = math.MaxInt64
		for i := range created {
			n := created[i].Load()
			sum, least = sum+n, min(least, n)
		}
		return sum, least
	}
	for i := range created {
		creators.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				_, err := st.Update(context.WithoutCancel(ctx), func(tx Tx) error {
					return fruitTable.Create(tx, fruit{Tree: "oak", Name: fmt.Sprint(i, "-", n)})
				})
				if err != nil {
					return err
				}
				created[i].Add(1)
			}
			return nil
		})
	}
	for n := int64(0); n < 10; n++ {
		runs := 0
		_, err := st.Update(t.Context(), func(tx Tx) error {
			runs++
			all, err := fruitTable.List(tx, fruits("oak"))
			if runs <= claimAfter {
				for before, _ := progress(); ; runtime.Gosched() {
					if now, _ := progress(); now >= before+20 {
						break
					}
				}
			}
			tx.Put(Root+"oper/count", fmt.Appendf(nil, "%d", len(all)), nil)
			return err
		})
		if err != nil {
			t.Fatalf("list %d: %v", n, err)
		}
		if want := claimAfter + 1; runs != want {
			t.Errorf("list %d took %d runs, want %d", n, runs, want)
		}
		for _, least := progress(); least < n+1; _, least = progress() { // the slowest creator gets on, too
			runtime.Gosched()
		}
	}
	cancel()
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	if kvs, _, _ := st.Range(t.Context(), claimPrefix); len(kvs) > 0 {
		t.Errorf("claims left behind: %v", kvs)
	}
}
