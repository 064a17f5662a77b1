package reconcile

import (
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

// NewBackoff returns a Backoff without keys.
func NewBackoff[K comparable](cfg BackoffConfig) *Backoff[K] {
	if cfg.Base <= 0 {
		cfg.Base = 100 * time.Millisecond
	}
	if cfg.Max < cfg.Base {
		cfg.Max = max(cfg.Base, 30*time.Second)
	}
	if cfg.Jitter <= 0 {
		cfg.Jitter = 0.2
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Backoff[K]{cfg: cfg, keys: map[K]retryState{}}
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
	delay := min(max(b.cfg.Base, 2*last), b.cfg.Max)
	wait := delay - time.Duration(b.cfg.Jitter*b.cfg.Rand()*float64(delay))
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
