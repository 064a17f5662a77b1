package waiting

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A change between looking and waiting is not missed, and everybody hears it.
func TestEveryChangeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Changes
		c.Notify() // without waiters: no harm
		var mu sync.Mutex
		n := 0
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				err := c.Until(t.Context(), func() (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					return n == 2, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		for range 2 {
			synctest.Wait()
			mu.Lock()
			n++
			mu.Unlock()
			c.Notify()
		}
		all.Wait()
		next := c.Next()
		c.Notify() // after Next and before the wait
		<-next
		bad := errors.New("bad")
		if err := c.Until(t.Context(), func() (bool, error) { return false, bad }); !errors.Is(err, bad) {
			t.Errorf("Until = %v, want the condition's error", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Until(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Until = %v, want the context's end", err)
		}
	})
}

func TestValueSignalsChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		_, changed := v.Get()
		v.Set(0)
		select {
		case <-changed:
			t.Error("setting what it is already counts as a change")
		default:
		}
		var done sync.WaitGroup
		done.Go(func() {
			if err := v.Until(t.Context(), func(n int) bool { return n > 1 }); err != nil {
				t.Error(err)
			}
		})
		v.Set(1)
		<-changed
		v.Set(2)
		done.Wait()
	})
}

func TestBellRingsOnceForTwoRings(t *testing.T) {
	b := NewBell()
	b.Ring()
	b.Ring()
	<-b
	select {
	case <-b:
		t.Error("two rings before it was heard count twice")
	default:
	}
}

// A key has one holder at a time, other keys are independent, and unused keys take no
// memory.
func TestKeyHasOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns KeyedLocks[string]
		end, err := turns.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := turns.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turns.Lock(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Take of a held turn = %v, want the context's end", err)
		}
		var next sync.WaitGroup
		next.Go(func() {
			end, err := turns.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			end()
		})
		synctest.Wait()
		end()
		next.Wait()
		if len(turns.keys) != 0 {
			t.Errorf("%d keys are kept that nobody uses", len(turns.keys))
		}
	})
}

func TestPausesOfRetriesGrowToTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRetry(BackoffConfig{Base: time.Second, Max: 3 * time.Second, Rand: func() float64 { return 0 }})
		start := time.Now()
		for range 3 { // 1 + 2 + 3
			if err := r.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.Reset()
		if err := r.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 7*time.Second {
			t.Errorf("four pauses took %v, want 7 s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Pause(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Pause = %v, want the context's end", err)
		}
	})
}
