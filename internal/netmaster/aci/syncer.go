package aci

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// Target is what keeps a fabric.
type Target interface {
	// Apply makes the fabric what f says, and reports the parts that are not in force.
	Apply(ctx context.Context, f Fabric) (Report, error)
	// Close ends the session, if there is one; the fabric stays as it is.
	Close(ctx context.Context)
}

// Report is what came of an Apply.
type Report struct {
	Problems []Problem // sorted
	Writes   int       // requests that changed something
}

// Resync is how often a fabric is compared again when nothing was changed here.
const Resync = 5 * time.Minute

// RecheckDelay is how long after the begin a fabric is compared once more: a request of who kept
// it before, and did not know yet that this is over, may be done after the first
// comparison, and has ended by then.
const RecheckDelay = 2 * Timeout

// SyncerConfig says how often; zero fields get defaults.
type SyncerConfig struct {
	Resync       time.Duration // 0 = Resync
	RecheckDelay time.Duration // after Run's begin it is compared in any case; 0 = Second
	Retry        waiting.BackoffConfig
}

// State is how a Syncer fares.
type State struct {
	InSync    bool      `json:"inStep"`            // the fabric had all but Problems of what is wanted now when it was last looked at
	CheckedAt time.Time `json:"looked,omitzero"`   // when it last was
	Error     string    `json:"trouble,omitempty"` // why the last try failed; it is tried again
	Failures  int       `json:"failures"`          // tries in a row that failed
	Problems  []Problem `json:"problems"`          // of the last try
	Writes    uint64    `json:"writes"`            // requests so far that changed something
}

// Syncer keeps a Target as it was last told. All methods are for any goroutine,
// but Run.
type Syncer struct {
	target Target
	cfg    SyncerConfig

	mu      sync.Mutex
	want    *Fabric // nil = nothing was said yet, and nothing is done
	version int     // of want
	state   State
	changes waiting.Changes // of want, and of state
}

// NewSyncer returns a Syncer that does nothing before Run.
func NewSyncer(t Target, cfg SyncerConfig) *Syncer {
	if cfg.Resync == 0 {
		cfg.Resync = Resync
	}
	if cfg.RecheckDelay == 0 {
		cfg.RecheckDelay = RecheckDelay
	}
	if cfg.Retry.Base == 0 {
		cfg.Retry.Base = time.Second
	}
	if cfg.Retry.Max == 0 {
		cfg.Retry.Max = time.Minute
	}
	return &Syncer{target: t, cfg: cfg, state: State{Problems: []Problem{}}}
}

// Set says what the fabric should be, in whole. Who calls it must not change f
// afterwards.
func (s *Syncer) Set(f Fabric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want = &f
	s.version++
	s.state.InSync = false
	s.changes.Notify()
}

// State tells how it fares.
func (s *Syncer) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Changed returns what is closed at the next change of the state.
func (s *Syncer) Changed() <-chan struct{} { return s.changes.Next() }

// Run keeps the target until ctx ends; then it closes it, and returns. A failure
// is tried again with back-off, whatever is said meanwhile.
func (s *Syncer) Run(ctx context.Context) {
	retry := waiting.NewRetry(s.cfg.Retry)
	defer func() {
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		s.target.Close(over)
	}()
	second := time.Now().Add(s.cfg.RecheckDelay)
	for ctx.Err() == nil {
		changed := s.changes.Next()
		s.mu.Lock()
		want, version := s.want, s.version
		s.mu.Unlock()
		if want != nil {
			report, err := s.target.Apply(ctx, *want)
			if ctx.Err() != nil {
				return
			}
			s.note(version, report, err)
			if err != nil {
				if retry.Pause(ctx) != nil {
					return
				}
				continue
			}
			retry.Reset()
		}
		wait := s.cfg.Resync
		if left := time.Until(second); left > 0 {
			wait = min(wait, left)
		}
		s.pause(ctx, wait, version, changed)
	}
}

// note keeps what came of a try for what was wanted at version.
func (s *Syncer) note(version int, r Report, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Problems = append([]Problem{}, r.Problems...)
	s.state.Writes += uint64(r.Writes)
	if s.state.Error = ""; err != nil {
		s.state.Error = err.Error()
		s.state.Failures++
		s.state.InSync = false
	} else {
		s.state.Failures = 0
		s.state.InSync = version == s.version
		s.state.CheckedAt = time.Now()
	}
	s.changes.Notify()
}

// pause waits until something else is wanted than at version, or for d.
func (s *Syncer) pause(ctx context.Context, d time.Duration, version int, changed <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		s.mu.Lock()
		other := s.version != version
		s.mu.Unlock()
		if other {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-changed:
			changed = s.changes.Next()
		}
	}
}
