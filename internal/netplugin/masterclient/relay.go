package masterclient

import (
	"context"
	"errors"
	"io"
)

// RelayURLs are the base URLs of the netmasters that are known, which may relay, and seeds: all
// that the registry told of may be gone. While none is known, it waits until ctx ends.
func (m *Client) RelayURLs(ctx context.Context) (known, seeds []string) {
	m.Await(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		known = m.client.URLs()
	}
	return known, m.seeds
}

// Relay opens the stream by which one netmaster relays the store (package relay): what is
// written are asks, what is read are messages. It ends with ctx.
func (m *Client) Relay(ctx context.Context, base string) (io.ReadWriteCloser, error) {
	c, err := m.Dial(base)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	// An exchange that is given up waits for who reads what is asked.
	context.AfterFunc(ctx, func() { _ = r.Close() }) // it never fails
	body, err := c.Mirror(ctx, r)
	if err != nil {
		cancel()
		c.Close()
		return nil, FromAPI("mirror from netmaster "+base, err)
	}
	return &relayed{ReadCloser: body, asks: w, end: func() {
		cancel()
		c.Close()
	}}, nil
}

// relayed is a stream of a netmaster.
type relayed struct {
	io.ReadCloser
	asks *io.PipeWriter
	end  func()
}

// Write implements io.Writer.
func (s *relayed) Write(b []byte) (int, error) { return s.asks.Write(b) }

// Close implements io.Closer.
func (s *relayed) Close() error {
	s.end()
	return errors.Join(s.asks.Close(), s.ReadCloser.Close())
}
