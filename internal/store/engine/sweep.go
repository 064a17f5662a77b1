package engine

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/store"
)

// sweepBatch is how many generations one transaction removes: with the fence,
// sweptKey and the commit key at most store.MinOps.
const sweepBatch = store.MinOps - 3

// SweepGenerations removes the generations of scopes that were not touched since revision
// before, and returns their number: every scope that ever existed, of a network or a
// tenant, leaves one. It is safe at any time: an observer whose generation goes runs again,
// and so does one that found none (sweptKey); before only spares scopes in use. Fails with
// ErrFenced when the term has ended.
func SweepGenerations(ctx context.Context, st store.Store, fence store.Fence, before store.Revision) (int, error) {
	kvs, _, err := st.Range(ctx, genPrefix)
	if err != nil {
		return 0, fmt.Errorf("list generations: %w", err)
	}
	var old []string
	for _, kv := range kvs {
		if kv.Mod < before {
			old = append(old, kv.Key)
		}
	}
	done := 0
	for len(old) > 0 {
		some := old[:min(sweepBatch, len(old))]
		old = old[len(some):]
		if _, err := st.Update(ctx, func(tx store.Tx) error {
			fence.Require(tx)
			tx.Put(sweptKey, nil, nil)
			for _, key := range some {
				tx.Delete(key)
			}
			return nil
		}); err != nil {
			return done, fmt.Errorf("remove generations: %w", err)
		}
		done += len(some)
	}
	return done, nil
}
