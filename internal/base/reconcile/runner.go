package reconcile

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// Config says what a Runner runs and when. E is the type of the events of the
// actual side.
type Config[E any] struct {
	// Pass makes actual state follow desired state once. It takes the newest
	// desired state when it starts, not when it was woken. It returns the keys of
	// what could not be made true (retried, each with its own back-off) and an
	// error for what concerns the pass as a whole (retried as the key "").
	Pass func(ctx context.Context, reasons []string) (failed []string, err error)
	// Events tells of changes of the actual side; may be nil. When it is closed
	// the Runner goes on without.
	Events <-chan E
	// Reason names an event; needed with Events.
	Reason func(E) string
	// Drift is the mean time between passes that nothing asked for; each interval
	// is between half and one and a half of it. Zero means none.
	Drift time.Duration
	// DriftSoonest is that mean time where such passes cost so little that they take at
	// most a hundredth of the time; zero means Drift.
	DriftSoonest time.Duration
	// Spacing is how long after a pass one may begin that only Soon asks for.
	Spacing time.Duration
	// Backoff spaces retries; zero fields get defaults.
	Backoff waiting.BackoffConfig
	// OnError hears of every pass that returned an error and when it is retried;
	// may be nil. It runs on the Runner's goroutine.
	OnError func(err error, retryIn time.Duration)
}

// Runner runs passes until its context ends:
//
//	r := reconcile.New(reconcile.Config[driver.Event]{
//		Pass: func(ctx context.Context, reasons []string) ([]string, error) {
//			want := inputs.compile()              // takes what came in since the last pass
//			report, err := drv.Apply(ctx, want)   // never two at a time
//			publish(report)
//			return failedPorts(report), err
//		},
//		Events: drv.Events(),
//		Reason: func(e driver.Event) string { return e.Reason },
//		Drift:  time.Minute,
//	})
//	go func() { done <- r.Run(ctx) }()
//	...
//	inputs.add(batch); r.Kick("mirror")        // from any goroutine, never blocks
//	inputs.attach(req); r.Kick("attach")
type Runner[E any] struct {
	cfg  Config[E]
	wake chan struct{} // capacity 1: at least one Kick since the last pass began
	soon chan struct{} // likewise, of Soon

	mu      sync.Mutex
	reasons []string // of the Kicks since then, each once
}

// New returns a Runner that does nothing until Run.
func New[E any](cfg Config[E]) *Runner[E] {
	return &Runner[E]{cfg: cfg, wake: make(chan struct{}, 1), soon: make(chan struct{}, 1)}
}

// Kick asks for a pass that begins after this call. It never blocks, may be
// called from any goroutine, also from within a pass, before Run and after it.
func (r *Runner[E]) Kick(reason string) { r.ask(r.wake, reason) }

// Soon is Kick for what comes in bursts and can wait for the others of its burst:
// the pass begins at once, unless the last one has ended less than Spacing ago.
func (r *Runner[E]) Soon(reason string) { r.ask(r.soon, reason) }

func (r *Runner[E]) ask(how chan struct{}, reason string) {
	r.mu.Lock()
	if !slices.Contains(r.reasons, reason) {
		r.reasons = append(r.reasons, reason)
	}
	r.mu.Unlock()
	select {
	case how <- struct{}{}:
	default:
	}
}

func (r *Runner[E]) takeReasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	reasons := r.reasons
	r.reasons = nil
	return reasons
}

// Run runs passes until ctx ends, then returns ctx's error. A pass that is
// running then gets the cancelled ctx and is waited for. The first pass runs
// when something asks for it: Kick before Run to have one at once.
func (r *Runner[E]) Run(ctx context.Context) error {
	retries := waiting.NewBackoff[string](r.cfg.Backoff)
	events := r.cfg.Events
	retry, drift, spacing := newStoppedTimer(), newStoppedTimer(), newStoppedTimer()
	defer retry.Stop()
	defer drift.Stop()
	defer spacing.Stop()
	var last time.Time // when the last pass ended
	r.armDrift(drift, r.cfg.Drift)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		case <-r.soon:
			if wait := r.cfg.Spacing - time.Since(last); wait > 0 && ctx.Err() == nil {
				spacing.Reset(wait)
				continue
			}
		case <-spacing.C:
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			r.Kick(r.cfg.Reason(e))
			events = r.drain(events)
		case <-retry.C:
			r.Kick("retry")
		case <-drift.C:
			r.Kick(reasonDrift)
		}
		if ctx.Err() != nil { // select picks at random among what is ready
			return ctx.Err()
		}
		for _, asked := range []chan struct{}{r.wake, r.soon} {
			select {
			case <-asked: // this pass answers everybody until now
			default:
			}
		}
		spacing.Stop()
		reasons, begun := r.takeReasons(), time.Now()
		failed, err := r.cfg.Pass(ctx, reasons)
		if err != nil {
			failed = append(slices.Clone(failed), "")
		}
		now := time.Now()
		last = now
		if slices.Contains(reasons, reasonDrift) {
			r.armDrift(drift, now.Sub(begun))
		}
		retries.Settle(now, failed)
		next, waiting := retries.Next()
		if err != nil && r.cfg.OnError != nil && ctx.Err() == nil {
			r.cfg.OnError(err, retries.At("").Sub(now))
		}
		retry.Stop()
		if waiting {
			retry.Reset(next.Sub(now))
		}
	}
}

// drain takes the events that are there already, so that a burst costs one pass.
func (r *Runner[E]) drain(events <-chan E) <-chan E {
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			r.Kick(r.cfg.Reason(e))
		default:
			return events
		}
	}
}

const (
	reasonDrift = "drift"
	driftShare  = 100 // of the time, one part at most goes to passes that nothing asked for
)

// armDrift has the next pass that nothing asked for come, after one that took so long.
func (r *Runner[E]) armDrift(t *time.Timer, took time.Duration) {
	every := r.cfg.Drift
	if s := r.cfg.DriftSoonest; s > 0 {
		every = min(every, max(s, driftShare*took))
	}
	if every > 0 {
		t.Reset(every/2 + rand.N(every))
	}
}

func newStoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
