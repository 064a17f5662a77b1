package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// Patience is how long a hub may say nothing until it is left: as long as the etcd
	// client takes to leave a server that stands still.
	Patience = 3 * Beat
	// answerFor is how long a netmaster may take to show that it relays.
	answerFor = 2 * time.Second
	// tryFor is for how long netmasters are tried before the store has to do.
	tryFor = 4 * time.Second
	// backAfter is for how long a Reader then stays with the store, more or less.
	backAfter = time.Minute
	// lasting is how long a stream has to have lived for another one to be worth trying at
	// once.
	lasting = 10 * time.Second
)

// Config is what a Reader needs. Zero durations get the constants above.
type Config struct {
	Store store.Reader
	Log   *slog.Logger
	// Serves are the prefixes of what is relayed; what lies elsewhere is the store's.
	Serves []string
	// Hubs tells where hubs may be, in any order; it may wait, until ctx ends, until there
	// is any.
	Hubs func(ctx context.Context) []string
	// Open opens a stream, which ends with ctx.
	Open func(ctx context.Context, hub string) (io.ReadWriteCloser, error)

	Patience, AnswerFor, TryFor, BackAfter, Lasting time.Duration
}

// From tells where a Reader mirrors from.
type From struct {
	Hub   string    // empty = from the store
	Since time.Time // zero = that is not decided yet
	Why   string    // of mirroring from the store
	Moves int       // how often it has changed
}

// Reader is a store.Reader whose mirrors are a hub's while there is one. Mirrors wait for
// Run.
type Reader struct {
	store.Reader
	cfg Config

	mu      sync.Mutex
	source  *source // nil = it is being decided
	from    From
	changes waiting.Changes
}

// source is from where mirrors go on, until done.
type source struct {
	link *link // nil = the store
	done chan struct{}
}

var errNone = model.Errorf(model.ErrUnavailable, "no netmaster is known")

// NewReader returns a Reader that has decided nothing yet.
func NewReader(cfg Config) *Reader {
	for _, d := range []struct {
		to *time.Duration
		is time.Duration
	}{{&cfg.Patience, Patience}, {&cfg.AnswerFor, answerFor}, {&cfg.TryFor, tryFor}, {&cfg.BackAfter, backAfter}, {&cfg.Lasting, lasting}} {
		if *d.to == 0 {
			*d.to = d.is
		}
	}
	return &Reader{Reader: cfg.Store, cfg: cfg}
}

// From returns where mirrors are from now.
func (r *Reader) From() From {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from
}

// Run chooses where mirrors are from, until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	defer r.move(nil, From{})
	for ctx.Err() == nil {
		l, err := r.connect(ctx)
		if err == nil {
			begun := time.Now()
			r.move(&source{link: l, done: make(chan struct{})}, From{Hub: l.hub})
			r.cfg.Log.Info("the store is mirrored from a netmaster", "netmaster", l.hub)
			err = l.run(r.cfg.Patience)
			if ctx.Err() == nil && time.Since(begun) >= r.cfg.Lasting && !errors.Is(err, errStill) {
				r.cfg.Log.Warn("a netmaster stopped relaying the store; trying another one", "netmaster", l.hub, "error", err)
				r.move(nil, From{})
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		if from := r.From(); from.Hub != "" || from.Since.IsZero() {
			r.cfg.Log.Warn("the store is mirrored directly, since no netmaster relays it", "error", err)
			r.move(&source{done: make(chan struct{})}, From{Why: err.Error()})
		}
		// Not all hosts come back at a time. The store is not left before a hub is there.
		_ = waiting.Pause(ctx, r.cfg.BackAfter*3/4+rand.N(r.cfg.BackAfter/2)) // the loop's condition tells
	}
}

// move has all mirrors go on from somewhere else.
func (r *Reader) move(to *source, from From) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.source != nil {
		close(r.source.done)
	}
	if r.source = to; to != nil {
		from.Since, from.Moves = time.Now(), r.from.Moves+1
		r.from = from
	}
	r.changes.Tell()
}

// connect finds a hub that relays.
func (r *Reader) connect(ctx context.Context) (*link, error) {
	within, cancel := context.WithTimeout(ctx, r.cfg.TryFor)
	defer cancel()
	hubs := slices.Clone(r.cfg.Hubs(within))
	rand.Shuffle(len(hubs), func(i, j int) { hubs[i], hubs[j] = hubs[j], hubs[i] }) // each has its share
	err := errNone
	for _, hub := range hubs {
		if within.Err() != nil {
			break
		}
		var l *link
		if l, err = r.dial(ctx, hub); err == nil {
			return l, nil
		}
		err = fmt.Errorf("%s: %w", hub, err)
	}
	return nil, err
}

// Mirror implements store.Reader.
func (r *Reader) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	for _, p := range prefixes {
		if !slices.ContainsFunc(r.cfg.Serves, func(s string) bool { return strings.HasPrefix(p, s) }) {
			return r.Reader.Mirror(ctx, prefixes, fn, opts...)
		}
	}
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	m := &mirror{fn: fn, commits: o.Commits, withheld: o.Withheld}
	if m.withheld == nil {
		m.withheld = func() {}
	}
	return store.KeepMirror(ctx, prefixes, opts, func(state *store.MirrorState, onState func(error)) (bool, error, error) {
		m.state, m.onState = state, onState
		src, err := r.await(ctx)
		switch {
		case err != nil:
			return false, nil, err
		case src.link != nil:
			return src.link.follow(ctx, m)
		}
		return r.fromStore(ctx, src, m)
	})
}

// mirror is one that goes on from source to source.
type mirror struct {
	state   *store.MirrorState
	fn      func(store.Batch) error
	commits bool
	onState func(error)

	withheld func()
	partial  bool // the newest list was
}

// await returns the source once it is decided.
func (r *Reader) await(ctx context.Context) (src *source, err error) {
	err = r.changes.Until(ctx, func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		src = r.source
		return src != nil, nil
	})
	return src, err
}

// fromStore mirrors from the store until the source is another.
func (r *Reader) fromStore(ctx context.Context, src *source, m *mirror) (following bool, reason, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		select {
		case <-src.done:
			cancel()
		case <-within.Done():
		}
	})
	opts := []store.MirrorOption{store.OnState(func(err error) {
		if within.Err() == nil {
			following = following || err == nil
			m.onState(err)
		}
	}), store.Since(m.state.Since)}
	if m.commits {
		opts = append(opts, store.FollowCommits())
	}
	var failed error
	err = r.Reader.Mirror(within, m.state.Prefixes(), func(b store.Batch) error {
		out, deliver := m.state.Pass(b)
		if !deliver {
			return nil
		}
		failed = m.fn(out)
		return failed
	}, opts...)
	switch {
	case failed != nil:
		return following, nil, failed
	case ctx.Err() != nil:
		return following, nil, ctx.Err()
	case within.Err() != nil:
		return true, store.ErrMoves, nil
	}
	return following, nil, err
}
