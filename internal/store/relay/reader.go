package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// Patience is how long a hub may say nothing until it is left.
	Patience = 3 * Beat
	// answerTimeout is how long a netmaster may take to show that it relays.
	answerTimeout = 10 * time.Second
	// nextHubAfter is how long a netmaster may take until the next one is asked too.
	nextHubAfter = 500 * time.Millisecond
)

// Config is what a Reader needs. Zero durations get the constants above.
type Config struct {
	Log  *slog.Logger
	Hubs Hubs

	Patience, AnswerFor, NextAfter time.Duration
}

// Hubs finds the hubs that a Reader may mirror from, and connects to them.
type Hubs interface {
	// RelayURLs tells where hubs are, in any order, and where others may be, which are asked
	// when none of these answers: a wrong guess may be somebody else's machine. It may wait,
	// until ctx ends, until there is any.
	RelayURLs(ctx context.Context) (known, guessed []string)
	// Relay opens a stream to a hub, which ends with ctx.
	Relay(ctx context.Context, hub string) (io.ReadWriteCloser, error)
}

// From tells where a Reader mirrors from.
type From struct {
	Hub   string    // empty = from nowhere
	Since time.Time // zero = no hub was found yet
	Why   string    // there is none
	Moves int       // how often it has changed
}

// Reader is a store.Mirrorer whose mirrors are those of a hub. Mirrors wait for Run. From one
// hub to another a mirror goes on with what it has missed.
type Reader struct {
	cfg Config

	mu       sync.Mutex
	link     *link          // nil = one is looked for
	oldDials sync.WaitGroup // of hubs that were asked, and answer after another one
	from     From
	changes  waiting.Changes
}

var errNone = model.Errorf(model.ErrUnavailable, "no netmaster is known")

// NewReader returns a Reader that has found no hub yet.
func NewReader(cfg Config) *Reader {
	for _, d := range []struct {
		to *time.Duration
		is time.Duration
	}{{&cfg.Patience, Patience}, {&cfg.AnswerFor, answerTimeout}, {&cfg.NextAfter, nextHubAfter}} {
		if *d.to == 0 {
			*d.to = d.is
		}
	}
	return &Reader{cfg: cfg}
}

// From returns where mirrors are from now.
func (r *Reader) From() From {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// Run chooses where mirrors are from, until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	defer r.oldDials.Wait()
	defer r.switchHub(nil, nil)
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 100 * time.Millisecond, Max: 2 * time.Second, Jitter: 0.5})
	left, lost := "", time.Time{} // lost is when the last hub was; zero = there was none, or it has been logged
	for ctx.Err() == nil {
		l, err := r.connect(ctx, left, true)
		if err != nil {
			// A netmaster that restarts is back before that.
			if !lost.IsZero() && time.Since(lost) >= r.cfg.Patience && ctx.Err() == nil {
				r.cfg.Log.Warn("no netmaster passes the cluster's state on: what this host has of it stays as it is", "error", err)
				lost = time.Time{}
			}
			r.switchHub(nil, err)
			_ = retry.Pause(ctx) // the loop's condition tells
			continue
		}
		retry.Reset()
		for l != nil {
			left = l.hub
			l = r.followHub(ctx, l)
		}
		lost = time.Now()
	}
}

// followHub follows a hub until it is of no more use, and returns the one that it was left for,
// if any. A hub that does not hear the store is left once another one is there that does.
func (r *Reader) followHub(ctx context.Context, l *link) (next *link) {
	r.switchHub(l, nil)
	r.cfg.Log.Info("the cluster is mirrored from a netmaster", "netmaster", l.hub)
	looking, stop := context.WithCancel(ctx)
	found := make(chan *link, 1)
	var running sync.WaitGroup
	running.Go(func() {
		defer close(found)
		for waiting.Pause(looking, r.cfg.Patience/2) == nil {
			if !l.isStale() {
				continue
			}
			if other, err := r.connect(ctx, l.hub, false); err == nil { // it outlives looking
				found <- other
				l.end()
				return
			}
		}
	})
	err := l.run(r.cfg.Patience)
	stop()
	running.Wait()
	if next = <-found; ctx.Err() == nil {
		r.cfg.Log.Info("a netmaster does not pass the cluster's state on any more", "netmaster", l.hub, "error", err)
	}
	if next == nil {
		r.switchHub(nil, err)
	}
	return next
}

// switchHub has all mirrors go on from another hub; nil = none, and why.
func (r *Reader) switchHub(to *link, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link, r.from.Hub, r.from.Why = to, "", ""
	switch {
	case to != nil:
		r.from = From{Hub: to.hub, Since: time.Now(), Moves: r.from.Moves + 1}
	case why != nil:
		r.from.Why = why.Error()
	}
	r.changes.Notify()
}

// connect finds a hub that relays: a known one, left last, or else, if guess, a guessed one.
func (r *Reader) connect(ctx context.Context, left string, guess bool) (*link, error) {
	known, guessed := r.cfg.Hubs.RelayURLs(ctx)
	hubs := slices.Clone(known)
	rand.Shuffle(len(hubs), func(i, j int) { hubs[i], hubs[j] = hubs[j], hubs[i] }) // each has its share
	slices.SortStableFunc(hubs, func(a, b string) int {
		switch {
		case a != left && b == left:
			return -1
		case a == left && b != left:
			return 1
		}
		return 0
	})
	if guess {
		for _, u := range guessed {
			if !slices.Contains(hubs, u) {
				hubs = append(hubs, u)
			}
		}
	}
	type outcome struct {
		n   int
		l   *link
		err error
	}
	answers := make(chan outcome, len(hubs))
	ends := make([]context.CancelFunc, 0, len(hubs))
	err, asked := errNone, 0
	next := time.NewTimer(0)
	defer next.Stop()
	for waits := 0; asked < len(hubs) || waits > 0; {
		var after <-chan time.Time
		if asked < len(hubs) {
			after = next.C
		}
		select {
		case <-after:
			n := asked
			within, end := context.WithCancel(ctx)
			ends = append(ends, end)
			go func() {
				l, err := r.dial(within, hubs[n])
				answers <- outcome{n, l, err}
			}()
			asked++
			waits++
			if asked == len(known) {
				next.Reset(r.cfg.Patience)
			} else {
				next.Reset(r.cfg.NextAfter)
			}
		case a := <-answers:
			waits--
			if a.err == nil {
				for n, end := range ends {
					if n != a.n {
						end()
					}
				}
				r.oldDials.Go(func() {
					for range waits {
						<-answers
					}
				})
				end := a.l.end
				a.l.end = func() {
					end()
					ends[a.n]()
				}
				return a.l, nil
			}
			err = fmt.Errorf("%s: %w", hubs[a.n], a.err)
			ends[a.n]()
			next.Reset(0)
		}
	}
	return nil, err
}

// Mirror implements store.Mirrorer.
func (r *Reader) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	m := &mirror{fn: fn, commits: o.Commits, withheld: o.Withheld}
	if m.withheld == nil {
		m.withheld = func() {}
	}
	return store.KeepMirror(ctx, prefixes, opts, func(state *store.MirrorState, onState func(error)) (bool, error, error) {
		m.state, m.onState, m.list, m.listed, m.known = state, onState, nil, false, false
		l, err := r.await(ctx, onState)
		if err != nil {
			return false, nil, err
		}
		return l.follow(ctx, m)
	})
}

// mirror is one that goes on from hub to hub.
type mirror struct {
	state   *store.MirrorState
	fn      func(store.Batch) error
	commits bool
	onState func(error)

	withheld func()
	partial  bool   // the newest list was
	grade    string // of the newest list

	// On this link:
	list   []store.KV // what has come of a list
	listed bool       // it is known what lies under the prefixes
	known  bool       // likewise, or that it is withheld
}

// await returns the link once there is one. It reports why there is none.
func (r *Reader) await(ctx context.Context, onState func(error)) (l *link, err error) {
	err = r.changes.Until(ctx, func() (bool, error) {
		r.mu.Lock()
		why := r.from.Why
		l = r.link
		r.mu.Unlock()
		if l == nil && why != "" {
			onState(model.Errorf(model.ErrUnavailable, "no netmaster passes the cluster's state on: %s", why))
		}
		return l != nil, nil
	})
	return l, err
}
