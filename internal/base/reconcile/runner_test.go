package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// harness runs a Runner in a synctest bubble and logs its passes.
type harness struct {
	*Runner[string]
	events chan string
	mu     sync.Mutex
	log    []pass
	result func(n int) ([]string, error)
	gate   chan struct{} // when not nil, a pass waits on it
}

type pass struct {
	At      time.Duration
	Reasons []string
}

func start(t *testing.T, cfg Config[string], hold bool, result func(n int) ([]string, error)) *harness {
	t.Helper()
	h := &harness{events: make(chan string, 8), result: result}
	if hold {
		h.gate = make(chan struct{})
	}
	began := time.Now()
	running := false
	cfg.Events, cfg.Reason = h.events, func(e string) string { return e }
	cfg.Backoff.Rand = func() float64 { return 0 }
	cfg.Pass = func(ctx context.Context, reasons []string) ([]string, error) {
		h.mu.Lock()
		if running {
			t.Error("two passes at a time")
		}
		running = true
		slices.Sort(reasons)
		h.log = append(h.log, pass{time.Since(began), reasons})
		n := len(h.log)
		h.mu.Unlock()
		if h.gate != nil {
			select {
			case <-h.gate:
			case <-ctx.Done():
			}
		}
		h.mu.Lock()
		running = false
		h.mu.Unlock()
		if h.result == nil {
			return nil, nil
		}
		return h.result(n)
	}
	h.Runner = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want context.Canceled", err)
		}
	})
	return h
}

func (h *harness) want(t *testing.T, want ...pass) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(want, h.log); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
}

// TestKicksDuringARunCauseOneMore checks that kicks and events during a pass cause exactly
// one more, which knows all their reasons.
func TestKicksDuringARunCauseOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, Config[string]{}, true, nil)
		h.want(t)
		h.Kick("a")
		h.want(t, pass{0, []string{"a"}})
		for range 100 {
			h.Kick("b")
			h.Kick("c")
		}
		h.gate <- struct{}{}
		h.want(t, pass{0, []string{"a"}}, pass{0, []string{"b", "c"}})
		h.events <- "e1"
		h.events <- "e2"
		h.gate <- struct{}{}
		h.want(t, pass{0, []string{"a"}}, pass{0, []string{"b", "c"}}, pass{0, []string{"e1", "e2"}})
		close(h.gate)
		close(h.events)
		h.Kick("after the events' end")
		synctest.Wait()
		if n := len(h.log); n != 4 {
			t.Errorf("%d passes, want 4", n)
		}
	})
}

// TestFailingKeysAreRetriedEverMoreSeldom checks that a failing key is retried with growing delays,
// that success resets them, and that other passes do not disturb them.
func TestFailingKeysAreRetriedEverMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		var heard []time.Duration
		h := start(t, Config[string]{
			Backoff: waiting.BackoffConfig{Base: time.Second, Max: 3 * time.Second},
			OnError: func(_ error, in time.Duration) { heard = append(heard, in) },
		}, false, func(n int) ([]string, error) {
			switch {
			case n <= 2:
				return []string{"p1"}, nil
			case n <= 4:
				return []string{"p1"}, boom
			}
			return nil, nil
		})
		h.Kick("go")
		<-time.After(500 * time.Millisecond)
		h.Kick("other") // must not put off p1
		<-time.After(time.Minute)
		h.want(t,
			pass{0, []string{"go"}},
			pass{500 * time.Millisecond, []string{"other"}},
			pass{time.Second, []string{"retry"}},     // p1 is due; fails again, and so does the pass
			pass{2 * time.Second, []string{"retry"}}, // the pass is due
			pass{3 * time.Second, []string{"retry"}}, // p1 is due again; all is well
		)
		if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second}, heard); diff != "" {
			t.Errorf("OnError (-want +got):\n%s", diff)
		}
	})
}

// TestDriftRunsComeWithinTheInterval checks that unrequested runs happen within the jittered interval.
func TestDriftRunsComeWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, Config[string]{Drift: time.Minute}, false, nil)
		<-time.After(time.Hour)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		last := time.Duration(0)
		for _, p := range h.log {
			if gap := p.At - last; gap < 30*time.Second || gap > 90*time.Second {
				t.Errorf("drift pass after %v", gap)
			}
			last = p.At
		}
		if len(h.log) < 40 {
			t.Errorf("%d drift passes an hour", len(h.log))
		}
	})
}

// TestDriftComesSoonerWhereItIsCheap: passes that nothing asks for take a hundredth of the
// time at most, and come at least as often as Drift says.
func TestDriftComesSoonerWhereItIsCheap(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 5 * time.Second, 200 * time.Millisecond: 20 * time.Second, 10 * time.Second: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			passes := 0
			r := New(Config[string]{Drift: time.Minute, DriftSoonest: 5 * time.Second, Pass: func(context.Context, []string) ([]string, error) {
				passes++
				<-time.After(took)
				return nil, nil
			}})
			const long = 10 * time.Hour
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if mean := long/time.Duration(passes) - took; mean < want*8/10 || mean > want*12/10 {
				t.Errorf("passes that take %v come every %v, want %v", took, mean, want)
			}
		})
	}
}

// TestRunWaitsForTheRunningPass checks that Run waits for the running pass.
func TestRunWaitsForTheRunningPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		r := New(Config[string]{Pass: func(ctx context.Context, _ []string) ([]string, error) {
			<-ctx.Done()
			<-time.After(time.Second)
			ended = true
			return nil, ctx.Err()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		r.Kick("go")
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || !ended {
			t.Errorf("Run() = %v, pass ended: %v", err, ended)
		}
	})
}

// Requests in bursts get runs at a distance, the first at once. An urgent request does not
// wait, and takes the others along.
func TestBurstsOfKicksAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, Config[string]{Spacing: 10 * time.Millisecond}, false, nil)
		for range 8 {
			h.Soon("burst")
			<-time.After(3 * time.Millisecond)
		}
		h.Kick("urgent")
		<-time.After(time.Millisecond)
		h.Soon("late")
		<-time.After(time.Second)
		h.Soon("alone")
		<-time.After(time.Second)
		ms := time.Millisecond
		want := []pass{
			{0, []string{"burst"}},
			{10 * ms, []string{"burst"}},
			{20 * ms, []string{"burst"}},
			{24 * ms, []string{"burst", "urgent"}},
			{34 * ms, []string{"late"}},
			{1025 * ms, []string{"alone"}},
		}
		h.want(t, want...)
	})
}
