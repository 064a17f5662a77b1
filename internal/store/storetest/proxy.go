package storetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to a store, until it is broken.
type Proxy struct {
	dial     func() (net.Conn, error)
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	broken bool
	still  chan struct{} // closed = bytes pass
	conns  map[net.Conn]struct{}
}

// NewProxy listens on a free loopback port for the length of a test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		dial:     func() (net.Conn, error) { return new(net.Dialer).DialContext(tb.Context(), "tcp", target) },
		listener: l, conns: map[net.Conn]struct{}{}, still: make(chan struct{}),
	}
	close(p.still)
	p.running.Go(p.accept)
	tb.Cleanup(func() {
		_ = l.Close()
		p.Break()
		p.Release()
		p.running.Wait()
	})
	return p
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Break cuts all connections, and new ones at once, until Heal.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Heal lets connections through again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
}

// Stall lets connections be, and new ones be made, and no byte through until Release:
// as a server that stands still.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.still = make(chan struct{})
}

// Release lets bytes pass again.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.still:
	default:
		close(p.still)
	}
}

// Write waits while the proxy is held; see pipe.
func (w haltingWriter) Write(b []byte) (int, error) {
	w.proxy.mu.Lock()
	pass := w.proxy.still
	w.proxy.mu.Unlock()
	<-pass
	return w.to.Write(b)
}

type haltingWriter struct {
	proxy *Proxy
	to    net.Conn
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := p.dial()
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		if p.broken {
			_, _ = in.Close(), out.Close()
		} else {
			p.conns[in], p.conns[out] = struct{}{}, struct{}{}
			p.running.Go(func() { p.pipe(in, out) })
			p.running.Go(func() { p.pipe(out, in) })
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) pipe(to, from net.Conn) {
	_, _ = io.Copy(haltingWriter{p, to}, from)
	_, _ = to.Close(), from.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, to)
	delete(p.conns, from)
}
