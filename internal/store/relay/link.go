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

var (
	// errNoHeartbeat: a hub says nothing.
	errNoHeartbeat = model.Errorf(model.ErrUnavailable, "it has said nothing for a while")
	// errStale: a hub lives, and does not hear the store.
	errStale = model.Errorf(model.ErrUnavailable, "it has not heard the store for a while")
)

// link is a stream of a hub.
type link struct {
	hub   string
	conn  *idleConn
	lines *bufio.Scanner
	end   context.CancelFunc // of the stream
	done  chan struct{}      // closed when it is of no more use, for the reason why
	why   error

	mu    sync.Mutex
	last  int // id given
	by    map[int]*follow
	asks  []byte // to be sent
	wake  waiting.Bell
	fresh time.Time // when it was last
	stale bool
	rev   store.Revision // up to which all mirrors have been told everything
	place string         // likewise
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
	conn, err := r.cfg.Hubs.Relay(ctx, hub)
	if err != nil {
		return refuse(err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() }) // its reader gets an error
	l := newLink(hub, conn)
	l.end = cancel
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

func newLink(hub string, conn io.ReadWriteCloser) *link {
	l := &link{hub: hub, conn: &idleConn{ReadWriteCloser: conn}, end: func() {}, done: make(chan struct{}), by: map[int]*follow{}, wake: waiting.NewBell(), fresh: time.Now()}
	l.lines = newLines(l.conn)
	return l
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
	var silent atomic.Bool
	ended, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.ask(ended.Done()) })
	running.Go(func() {
		if l.conn.awaitNoHeartbeat(ended, patience) == nil {
			silent.Store(true)
			l.end()
		}
	})
	var err error
	for {
		var m api.MirrorMessage
		if m, err = l.read(); err != nil {
			break
		}
		l.dispatch(m, patience)
	}
	if silent.Load() {
		err = errNoHeartbeat
	}
	l.why = fmt.Errorf("netmaster %s: %w: %w", l.hub, store.ErrSourceChanged, err)
	close(l.done)
	l.end()
	_ = l.conn.Close() // its writers get an error
	stop()
	running.Wait()
	return err
}

// dispatch gives a message to its mirror; one of the stream says how far all are.
func (l *link) dispatch(m api.MirrorMessage, patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.ID != 0 {
		if f := l.by[m.ID]; f != nil && !f.full {
			if len(f.queue) == maxUnread {
				f.full, f.queue = true, nil
			} else {
				f.queue = append(f.queue, m)
			}
			f.wake.Ring()
		}
		return
	}
	if m.Alive {
		l.rev, l.place = store.Revision(m.Revision), m.Place
	}
	if m.Fresh {
		l.fresh = time.Now()
	}
	if stale := time.Since(l.fresh) > patience; stale != l.stale {
		l.stale = stale
		for _, f := range l.by {
			f.wake.Ring()
		}
	}
}

// isStale reports whether the hub lives and does not hear the store.
func (l *link) isStale() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale
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

func (l *link) putLocked(ask api.MirrorRequest) {
	b, err := json.Marshal(ask)
	if err != nil { // it has nothing that cannot be encoded
		return
	}
	l.asks = append(append(l.asks, b...), '\n')
	l.wake.Ring()
}

// open begins a mirror where it is.
func (l *link) open(m *mirror) *follow {
	ask := api.MirrorRequest{Prefixes: m.state.Prefixes(), Commits: m.commits, Since: m.state.Since()}
	if rev, place, of := m.state.At(); rev != 0 {
		ask.At, ask.AtPlace, ask.Store, ask.Grade = int64(rev), place, of.Mark(), m.grade
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	f := &follow{id: l.last, wake: waiting.NewBell()}
	l.by[f.id] = f
	ask.ID = f.id
	l.putLocked(ask)
	return f
}

func (l *link) close(f *follow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.by, f.id)
	l.putLocked(api.MirrorRequest{ID: f.id, End: true})
}

// take returns what has come for a mirror, at least one message, or whether the hub is stale
// when that is not what it was.
func (l *link) take(ctx context.Context, f *follow, wasStale bool) (queue []api.MirrorMessage, stale bool, err error) {
	for ended := false; ; {
		l.mu.Lock()
		queue, full := f.queue, f.full
		f.queue, stale = nil, l.stale
		l.mu.Unlock()
		switch {
		case full:
			return nil, stale, model.Errorf(model.ErrUnavailable, "%d changes waited here: what they left is read again", maxUnread)
		case len(queue) > 0 || stale != wasStale:
			return queue, stale, nil
		case ended:
			return nil, stale, l.why
		}
		select {
		case <-f.wake:
		case <-l.done:
			ended = true // and what came before is taken
		case <-ctx.Done():
			return nil, stale, ctx.Err()
		}
	}
}

// follow mirrors over the link, in the terms of store.KeepMirror.
func (l *link) follow(ctx context.Context, m *mirror) (following bool, reason, err error) {
	f := l.open(m)
	defer l.close(f)
	stale := false
	for {
		queue, is, err := l.take(ctx, f, stale)
		if err != nil {
			if ctx.Err() != nil {
				return following, nil, ctx.Err()
			}
			l.mu.Lock()
			if m.listed && !f.full { // all that came was delivered
				m.state.Advance(l.rev, l.place)
			}
			l.mu.Unlock()
			return following, err, nil
		}
		for _, msg := range queue {
			if ctx.Err() != nil {
				return following, nil, ctx.Err()
			}
			reason, err = m.enter(msg)
			if reason != nil || err != nil {
				return following, reason, err
			}
			if m.known && !following {
				following = true
				m.onState(nil)
			}
		}
		if stale != is {
			if stale = is; stale {
				m.onState(fmt.Errorf("netmaster %s: %w", l.hub, errStale))
			} else if following {
				m.onState(nil)
			}
		}
	}
}

// enter delivers what a message tells. A reason is what is wrong with the message, an error
// the consumer's.
func (m *mirror) enter(msg api.MirrorMessage) (reason, err error) {
	kvs, rev := allFromWire(msg.Rows), store.Revision(msg.Revision)
	var b store.Batch
	var deliver bool
	if rev != 0 {
		m.state.SetPlace(msg.Place, msg.Older)
	}
	switch {
	case msg.Withheld:
		m.state.Forget()
		m.list, m.listed, m.known = nil, false, true
		m.withheld()
		return nil, nil
	case msg.List && rev == 0:
		m.list = append(m.list, kvs...)
		return nil, nil
	case msg.List:
		var identity store.KV
		if msg.Identity != nil {
			identity = fromWire(*msg.Identity)
		}
		b, deliver = m.state.Relist(append(m.list, kvs...), rev, identity)
		b.Partial, deliver = msg.Partial, deliver || msg.Partial != m.partial
		m.partial, m.grade, m.list, m.listed = msg.Partial, msg.Grade, nil, true
		m.known = true
	case msg.Resumed:
		if at, _, _ := m.state.At(); at == 0 || rev < at || rev == at && len(kvs) > 0 {
			return fmt.Errorf("a relay goes on to revision %d where the mirror is at %d", rev, at), nil
		}
		m.listed, m.known = true, true
		b, deliver = m.commit(kvs, rev)
	case !m.listed:
		return errors.New("a relay tells of a commit before its list"), nil
	case rev <= m.state.Last():
		return fmt.Errorf("a relay tells of revision %d after %d", rev, m.state.Last()), nil
	default:
		b, deliver = m.commit(kvs, rev)
	}
	if !deliver {
		return nil, nil
	}
	return nil, m.fn(b)
}

func (m *mirror) commit(kvs []store.KV, rev store.Revision) (store.Batch, bool) {
	if m.commits {
		kvs = append(kvs, store.KV{Key: store.CommitKey})
	}
	return m.state.Commit(kvs, rev)
}
