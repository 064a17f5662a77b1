package waiting

import (
	"context"
	"math/rand/v2"
	"time"
)

// BackoffConfig says how retries are spaced; zero fields get defaults.
type BackoffConfig struct {
	Base   time.Duration  // first delay; default 100 ms
	Max    time.Duration  // longest delay; default 30 s
	Jitter float64        // share of the delay that is random, 0-1; default 0.2
	Rand   func() float64 // in [0, 1); default math/rand
}

// Backoff spaces the retries of each key: Base after the first failure, twice
// as long after each further one, up to Max, less a random share. The caller
// gives the time, so it needs no clock.
type Backoff[K comparable] struct {
	cfg  BackoffConfig
	keys map[K]retryState
}

type retryState struct {
	delay time.Duration // without jitter
	at    time.Time
}

func (c BackoffConfig) complete() BackoffConfig {
	if c.Base <= 0 {
		c.Base = 100 * time.Millisecond
	}
	if c.Max < c.Base {
		c.Max = max(c.Base, 30*time.Second)
	}
	if c.Jitter <= 0 {
		c.Jitter = 0.2
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

// after returns what follows a delay (zero = the first one), and how long to
// wait for it.
func (c BackoffConfig) after(last time.Duration) (delay, wait time.Duration) {
	delay = min(max(c.Base, 2*last), c.Max)
	return delay, delay - time.Duration(c.Jitter*c.Rand()*float64(delay))
}

// NewBackoff returns a Backoff without keys.
func NewBackoff[K comparable](cfg BackoffConfig) *Backoff[K] {
	return &Backoff[K]{cfg: cfg.complete(), keys: map[K]retryState{}}
}

// Settle records the outcome of a pass over everything: exactly these keys
// failed. A key that failed again before its time was due keeps its time, so
// passes for other reasons neither shorten nor lengthen it.
func (b *Backoff[K]) Settle(now time.Time, failed []K) {
	keys := make(map[K]retryState, len(failed))
	for _, k := range failed {
		if s, ok := b.keys[k]; ok && s.at.After(now) {
			keys[k] = s
			continue
		}
		keys[k] = b.later(now, b.keys[k].delay)
	}
	b.keys = keys
}

func (b *Backoff[K]) later(now time.Time, last time.Duration) retryState {
	delay, wait := b.cfg.after(last)
	return retryState{delay, now.Add(wait)}
}

// Next returns when the first key is due, and false when none waits.
func (b *Backoff[K]) Next() (at time.Time, ok bool) {
	for _, s := range b.keys {
		if !ok || s.at.Before(at) {
			at, ok = s.at, true
		}
	}
	return at, ok
}

// At returns when a key is due; the zero time when it does not wait.
func (b *Backoff[K]) At(k K) time.Time { return b.keys[k].at }

// Retry spaces the tries of one thing, as Backoff does those of many. It is for
// one goroutine.
type Retry struct {
	cfg  BackoffConfig
	last time.Duration
}

// NewRetry returns a Retry of something that has not failed yet.
func NewRetry(cfg BackoffConfig) *Retry { return &Retry{cfg: cfg.complete()} }

// Delay returns how long to wait after a failure, which it counts.
func (r *Retry) Delay() (wait time.Duration) {
	r.last, wait = r.cfg.after(r.last)
	return wait
}

// Pause waits for Delay, or returns ctx's error when that ends earlier.
func (r *Retry) Pause(ctx context.Context) error { return Pause(ctx, r.Delay()) }

// Reset counts from the beginning again: it has succeeded.
func (r *Retry) Reset() { r.last = 0 }
