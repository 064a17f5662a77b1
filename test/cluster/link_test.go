package cluster

import (
	"context"
	"net"
	"sync"
	"testing"
)

// link carries TCP connections to target's address, until it is cut.
type link struct {
	t       *testing.T
	address string // where it listens
	target  func() string
	ctx     context.Context //nolint:containedctx // its own end
	running sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil = cut
	conns    map[net.Conn]struct{}
	there    chan struct{} // closed = what goes to the target passes
	back     chan struct{} // likewise what comes back
}

// open is a gate that lets through.
func open() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// newLink listens on a loopback address for the length of a test.
func newLink(t *testing.T, target func() string) *link {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	l := &link{t: t, target: target, ctx: ctx, conns: map[net.Conn]struct{}{}, there: open(), back: open()}
	l.listen("127.0.0.1:0")
	t.Cleanup(func() {
		end()
		l.cut()
		l.running.Wait()
	})
	return l
}

func (l *link) listen(address string) {
	ln, err := new(net.ListenConfig).Listen(l.ctx, "tcp", address)
	if err != nil {
		l.t.Errorf("a link is not healed: %v", err)
		return
	}
	l.listener, l.address = ln, ln.Addr().String()
	l.running.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			l.carry(in)
		}
	})
}

func (l *link) carry(in net.Conn) {
	out, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.target())
	if err != nil {
		_ = in.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		_, _ = in.Close(), out.Close()
		return
	}
	l.conns[in], l.conns[out] = struct{}{}, struct{}{}
	l.running.Go(func() { l.pipe(out, in, func() chan struct{} { return l.there }) })
	l.running.Go(func() { l.pipe(in, out, func() chan struct{} { return l.back }) })
}

// pipe passes on what comes while its gate is open.
func (l *link) pipe(to, from net.Conn, gate func() chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		opens := gate()
		l.mu.Unlock()
		select {
		case <-opens:
		case <-l.ctx.Done():
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close() // one way's end is both's
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, to)
	delete(l.conns, from)
}

// cut ends all connections, and has new ones refused.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener != nil {
		_ = l.listener.Close()
		l.listener = nil
	}
	for c := range l.conns {
		_ = c.Close()
	}
	l.open()
}

// stall holds back what is sent either way, or only what comes back.
func (l *link) stall(answersOnly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = make(chan struct{})
	if !answersOnly {
		l.there = make(chan struct{})
	}
}

// open has both gates open; l.mu is held.
func (l *link) open() {
	for _, gate := range []chan struct{}{l.there, l.back} {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

// heal lets everything through again.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open()
	if l.listener == nil && l.ctx.Err() == nil {
		l.listen(l.address)
	}
}
