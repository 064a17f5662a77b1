package api

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are made in memory, so that their time can be the test's.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects to the listener.
func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

func TestClientClosesIdleConnectionsBeforeNetmastersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const headerTime = 10 * time.Second // of the servers of internal/security/transport
		ln, closed := make(pipes), make(chan time.Time, 1)
		server := &http.Server{
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }),
			ReadHeaderTimeout: headerTime,
			ConnState: func(_ net.Conn, s http.ConnState) {
				if s == http.StateClosed {
					closed <- time.Now()
				}
			},
		}
		go func() { _ = server.Serve(ln) }()
		c, err := NewClient("http://netmaster:9999")
		if err != nil {
			t.Fatal(err)
		}
		transport, ok := c.http.Transport.(*http.Transport)
		if !ok {
			t.Fatalf("the client's transport is a %T", c.http.Transport)
		}
		transport.DialContext = ln.dial
		if err := c.Do(t.Context(), http.MethodGet, "/version", nil, nil); err != nil {
			t.Fatal(err)
		}
		answered := time.Now()
		if idle := (<-closed).Sub(answered); idle > headerTime-time.Second {
			t.Errorf("an idle connection lasts %v, want a second less than the %v of netmasters", idle, headerTime)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}
