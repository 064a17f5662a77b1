package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/contiv/netplugin/v2/internal/model"
)

// reads is a store that answers on command.
type reads struct {
	mu     sync.Mutex
	n      int
	answer chan error
	ended  error // what it says when a context ends
}

func (r *reads) read(ctx context.Context) (Revision, error) {
	r.mu.Lock()
	r.n++
	n := r.n
	r.mu.Unlock()
	select {
	case err := <-r.answer:
		return Revision(n), err
	case <-ctx.Done():
		return 0, r.ended
	}
}

type result struct {
	rev Revision
	err error
}

// Everybody who asks while a read is under way waits for the next one, which
// all of them share: the one under way began before they asked.
func TestFreshReadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f freshness
		st := &reads{answer: make(chan error), ended: model.ErrUnavailable}
		got := make(chan result, 100)
		ask := func(ctx context.Context) {
			go func() {
				rev, err := f.read(ctx, st.read)
				got <- result{rev, err}
			}()
			synctest.Wait()
		}
		expect := func(n int, want result) {
			t.Helper()
			synctest.Wait()
			for range n {
				if r := <-got; r.rev != want.rev || !errors.Is(r.err, want.err) {
					t.Errorf("%+v, want %+v", r, want)
				}
			}
			if len(got) > 0 {
				t.Errorf("%d answers too many", len(got))
			}
		}
		ctx := t.Context()
		ask(ctx)
		for range 20 {
			ask(ctx)
		}
		st.answer <- nil
		expect(1, result{rev: 1})
		ask(ctx) // the second read has begun: this one is for the third
		st.answer <- nil
		expect(20, result{rev: 2})
		st.answer <- nil
		expect(1, result{rev: 3})

		// A leader that gives up does not end the others' reads.
		gone, leave := context.WithCancel(ctx)
		ask(ctx)
		ask(gone)
		ask(ctx)
		st.answer <- nil
		expect(1, result{rev: 4})
		leave()
		expect(1, result{err: st.ended})
		st.answer <- nil
		expect(1, result{rev: 6})
		// A store that fails is not asked by each of them.
		for range 9 {
			ask(ctx)
		}
		st.answer <- nil
		expect(1, result{rev: 7})
		st.answer <- model.ErrUnavailable
		expect(8, result{rev: 8, err: model.ErrUnavailable})
	})
}
