package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// maxUnread are messages that wait for one mirror whose consumer does not take them.
const maxUnread = 4096

// errStill: a hub says nothing.
var errStill = model.Errorf(model.ErrUnavailable, "it has not confirmed for a while that it receives the store's changes")

// link is a stream of a hub.
type link struct {
	hub   string
	conn  io.ReadWriteCloser
	lines *bufio.Scanner
	end   context.CancelFunc // of the stream
	done  chan struct{}      // closed when it is of no more use, for the reason why
	why   error

	mu   sync.Mutex
	last int // id given
	by   map[int]*follow
	asks []byte // to be sent
	wake waiting.Bell
}

// follow is one mirror on a link.
type follow struct {
	id   int
	wake waiting.Bell

	// Guarded by the link's mutex.
	queue []api.MirrorMessage
	full  bool
}

// dial opens a stream of a hub that shows in time that it hears the store.
func (r *Reader) dial(ctx context.Context, hub string) (*link, error) {
	ctx, cancel := context.WithCancel(ctx)
	var late atomic.Bool
	timer := time.AfterFunc(r.cfg.AnswerFor, func() {
		late.Store(true)
		cancel()
	})
	defer timer.Stop()
	refuse := func(err error) (*link, error) {
		cancel()
		if late.Load() {
			err = model.Errorf(model.ErrUnavailable, "no answer within %s", r.cfg.AnswerFor)
		}
		return nil, err
	}
	conn, err := r.cfg.Open(ctx, hub)
	if err != nil {
		return refuse(err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // its reader gets an error
	l := &link{
		hub: hub, conn: conn, lines: newLines(conn), end: cancel, done: make(chan struct{}),
		by: map[int]*follow{}, wake: waiting.NewBell(),
	}
	first, err := l.read()
	if err != nil {
		return refuse(err)
	}
	if !first.Fresh {
		return refuse(model.Errorf(model.ErrUnavailable, "its answer does not begin like a relay's"))
	}
	if !timer.Stop() {
		return refuse(context.DeadlineExceeded)
	}
	return l, nil
}

func newLines(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	return lines
}

// read returns the next message; the end that one tells of is an error.
func (l *link) read() (m api.MirrorMessage, err error) {
	if !l.lines.Scan() {
		if err = l.lines.Err(); err == nil {
			err = io.ErrUnexpectedEOF
		}
		return m, model.Errorf(model.ErrUnavailable, "the stream was interrupted: %w", err)
	}
	if err := json.Unmarshal(l.lines.Bytes(), &m); err != nil {
		return m, model.Errorf(model.ErrUnavailable, "a line is not a relay's message: %w", err)
	}
	if m.End != "" {
		return m, model.Errorf(model.ErrUnavailable, "it ended the stream: %s", m.End)
	}
	return m, nil
}

// run hands on what comes until the stream ends, or nothing comes for as long as patience
// lasts, and returns why.
func (l *link) run(patience time.Duration) error {
	var still atomic.Bool
	watch := time.AfterFunc(patience, func() {
		still.Store(true)
		l.end()
	})
	defer watch.Stop()
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { l.ask(ended) })
	var err error
	for {
		var m api.MirrorMessage
		if m, err = l.read(); err != nil {
			break
		}
		watch.Reset(patience)
		l.mu.Lock()
		if f := l.by[m.ID]; f != nil && !f.full {
			if len(f.queue) == maxUnread {
				f.full, f.queue = true, nil
			} else {
				f.queue = append(f.queue, m)
			}
			f.wake.Ring()
		}
		l.mu.Unlock()
	}
	if still.Load() {
		err = errStill
	}
	l.why = fmt.Errorf("netmaster %s: %w: %w", l.hub, store.ErrMoves, err)
	close(l.done)
	l.end()
	_ = l.conn.Close() // its writers get an error
	close(ended)
	asking.Wait()
	return err
}

// ask sends what mirrors ask for.
func (l *link) ask(ended <-chan struct{}) {
	for {
		select {
		case <-l.wake:
		case <-ended:
			return
		}
		l.mu.Lock()
		asks := l.asks
		l.asks = nil
		l.mu.Unlock()
		if _, err := l.conn.Write(asks); err != nil {
			l.end() // the reader tells why
			return
		}
	}
}

func (l *link) putLocked(ask api.MirrorAsk) {
	b, err := json.Marshal(ask)
	if err != nil { // it has nothing that cannot be encoded
		return
	}
	l.asks = append(append(l.asks, b...), '\n')
	l.wake.Ring()
}

func (l *link) open(prefixes []string, commits bool, since string) *follow {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	f := &follow{id: l.last, wake: waiting.NewBell()}
	l.by[f.id] = f
	l.putLocked(api.MirrorAsk{ID: f.id, Prefixes: prefixes, Commits: commits, Since: since})
	return f
}

func (l *link) close(f *follow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, f.id)
	l.putLocked(api.MirrorAsk{ID: f.id, End: true})
}

// take returns what has come for a mirror, at least one message.
func (l *link) take(ctx context.Context, f *follow) ([]api.MirrorMessage, error) {
	for ended := false; ; {
		l.mu.Lock()
		queue, full := f.queue, f.full
		f.queue = nil
		l.mu.Unlock()
		switch {
		case full:
			return nil, model.Errorf(model.ErrUnavailable, "%d changes were queued here: the list is read again", maxUnread)
		case len(queue) > 0:
			return queue, nil
		case ended:
			return nil, l.why
		}
		select {
		case <-f.wake:
		case <-l.done:
			ended = true // and what came before is taken
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// follow mirrors over the link, in the terms of store.KeepMirror.
func (l *link) follow(ctx context.Context, m *mirror) (following bool, reason, err error) {
	f := l.open(m.state.Prefixes(), m.commits, m.state.Since())
	defer l.close(f)
	var list []store.KV
	for {
		queue, err := l.take(ctx, f)
		if err != nil {
			if ctx.Err() != nil {
				return following, nil, ctx.Err()
			}
			return following, err, nil
		}
		for _, msg := range queue {
			if ctx.Err() != nil {
				return following, nil, ctx.Err()
			}
			kvs, rev := allFromWire(msg.Rows), store.Revision(msg.Revision)
			var b store.Batch
			var deliver bool
			if rev != 0 {
				m.state.Reach(msg.Place, msg.Older)
			}
			switch {
			case msg.Withheld:
				m.state.Forget()
				m.withheld()
				list, following = nil, true
				continue
			case msg.List && rev == 0:
				list = append(list, kvs...)
				continue
			case msg.List:
				var identity store.KV
				if msg.Identity != nil {
					identity = fromWire(*msg.Identity)
				}
				b, deliver = m.state.Relist(append(list, kvs...), rev, identity)
				b.Partial, deliver = msg.Partial, deliver || msg.Partial != m.partial
				m.partial = msg.Partial
				list = nil
			case !following:
				return following, errors.New("a relay sent a commit before its list"), nil
			case rev <= m.state.Last():
				return following, fmt.Errorf("a relay sent revision %d after %d", rev, m.state.Last()), nil
			default:
				if m.commits {
					kvs = append(kvs, store.KV{Key: store.CommitKey})
				}
				b, deliver = m.state.Commit(kvs, rev)
			}
			if deliver {
				if err := m.fn(b); err != nil {
					return following, nil, err
				}
			}
			if msg.List {
				following = true
				m.onState(nil)
			}
		}
	}
}
