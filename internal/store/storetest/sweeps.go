package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/engine"
)

// No phantom slips through while generations are removed as fast as they are
// made: every list that commits has all rows whose creation was committed before
// it, and no others.
func testSweepRace(t *testing.T, b *bench) {
	scope := key("tenant/green/nets/")
	rev := b.update(func(tx store.Tx) error { tx.Put(cluster.LeaderKey, []byte("me"), nil); return nil })
	fence := store.Fence{Key: cluster.LeaderKey, Create: rev}
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var rows, swept atomic.Int64
	var others errgroup.Group
	for i := range 2 {
		st := b.open()
		others.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				if _, err := st.Update(b.ctx, func(tx store.Tx) error {
					tx.Touch(scope)
					return tx.Create(fmt.Sprintf("%s%d-%d", scope, i, n), nil, nil)
				}); err != nil {
					return err
				}
				rows.Add(1)
			}
			return nil
		})
	}
	sweeper := b.open()
	others.Go(func() error {
		for ctx.Err() == nil {
			n, err := engine.SweepGenerations(b.ctx, sweeper, fence, 1<<60)
			if err != nil {
				return err
			}
			swept.Add(int64(n))
		}
		return nil
	})
	listed := map[store.Revision]int{}
	for i := 0; i < 30 || swept.Load() < 30 || rows.Load() < 60; i++ {
		n := 0
		at, err := b.Update(b.ctx, func(tx store.Tx) error {
			if err := tx.Observe(scope); err != nil {
				return err
			}
			kvs, err := tx.Range(scope, 0)
			n = len(kvs)
			tx.Put(key("listed"), fmt.Append(nil, n), nil)
			return err
		})
		if err != nil {
			t.Fatalf("list %d: %v", i, err)
		}
		listed[at] = n
	}
	stop()
	if err := others.Wait(); err != nil {
		t.Fatal(err)
	}
	kvs, _, err := b.Range(b.ctx, scope)
	if err != nil {
		t.Fatal(err)
	}
	for at, got := range listed {
		want := 0
		for _, kv := range kvs {
			if kv.Create < at {
				want++
			}
		}
		if got != want {
			t.Errorf("the list of revision %d has %d rows, and %d were created before it", at, got, want)
		}
	}
	t.Logf("%d lists, %d rows, %d generations swept", len(listed), rows.Load(), swept.Load())
}
