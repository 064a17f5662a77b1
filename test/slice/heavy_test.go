//go:build integration

package slice

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// heavyPort is where sinks listen.
const heavyPort = 5201

// period is after how many bytes a heavy stream repeats itself: a prime number of
// times 251, so that what is out of place by packets differs.
const period = 251 * 1021

func heavyPattern() []byte {
	p := make([]byte, period)
	for i := range p {
		p[i] = byte(i % 251)
	}
	return p
}

// sink has a container take heavy streams: it says its name, takes all that comes,
// and says at the end how many bytes that were, or where one was wrong. It ends with
// the test.
func (c *cluster) sink(name string) {
	c.t.Helper()
	var ln net.Listener
	err := c.space(name).Do(func() (err error) {
		ln, err = new(net.ListenConfig).Listen(c.t.Context(), "tcp", fmt.Sprintf(":%d", heavyPort))
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = ln.Close() }) // its loop ends
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := fmt.Fprintln(conn, name); err == nil {
					_, _ = fmt.Fprintln(conn, taken(conn)) // the sender sees what is missing
				}
			}()
		}
	}()
}

// taken reads a heavy stream to its end.
func taken(conn net.Conn) string {
	pattern, buf := heavyPattern(), make([]byte, 256<<10)
	got := 0
	for {
		n, err := conn.Read(buf)
		for i, b := range buf[:n] {
			if b != pattern[(got+i)%period] {
				return fmt.Sprintf("byte %d is %d", got+i, b)
			}
		}
		got += n
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("%d bytes", got)
		}
		if err != nil {
			return err.Error()
		}
	}
}

// heavy is a TCP connection from c on which bytes flow as fast as they go, or as
// they may.
type heavy struct {
	conn     net.Conn
	answers  *bufio.Reader
	provider string
	sent     atomic.Int64
	stop     chan struct{}
	once     sync.Once
	ended    chan struct{} // closed when nothing is sent any more
	err      error         // why, unless it was stopped
}

// heavy connects to a sink. The kernel sends at most rate
// bytes a second (tcp(7), SO_MAX_PACING_RATE); 0 = as many as go.
func (c *cluster) heavy(ctx context.Context, to netip.AddrPort, rate int) (*heavy, error) {
	conn, err := c.space("c").Dial(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	if rate > 0 {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, rate) })
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	h := &heavy{conn: conn, answers: bufio.NewReader(conn), stop: make(chan struct{}), ended: make(chan struct{})}
	err = conn.SetReadDeadline(time.Now().Add(patience))
	if err == nil {
		h.provider, err = h.answers.ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	h.provider = strings.TrimSpace(h.provider)
	c.t.Cleanup(func() { _ = conn.Close() }) // again, where it was not the test's end
	return h, nil
}

// run sends until stop, an error, or the connection's close.
func (h *heavy) run() {
	defer close(h.ended)
	pattern := heavyPattern()
	for {
		select {
		case <-h.stop:
			return
		default:
		}
		at := int(h.sent.Load() % period)
		n, err := h.conn.Write(pattern[at:min(period, at+64<<10)])
		h.sent.Add(int64(n))
		if err != nil {
			h.err = err
			return
		}
	}
}

// finish ends the stream and wants all of its bytes to have arrived.
func (h *heavy) finish() error {
	h.once.Do(func() { close(h.stop) })
	err := h.conn.SetDeadline(time.Now().Add(patience))
	<-h.ended
	defer h.conn.Close()
	if err := errors.Join(err, h.err); err != nil {
		return fmt.Errorf("after %d bytes: %w", h.sent.Load(), err)
	}
	if err := h.conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	said, err := h.answers.ReadString('\n')
	if want := fmt.Sprintf("%d bytes\n", h.sent.Load()); err != nil || said != want {
		return fmt.Errorf("%s took %q of %q: %w", h.provider, said, want, err)
	}
	return nil
}

// more waits until each of the streams has sent so many more bytes.
func more(ctx context.Context, streams []*heavy, bytes int64) error {
	want := make([]int64, len(streams))
	for i, h := range streams {
		want[i] = h.sent.Load() + bytes
	}
	return testcluster.Until(ctx, fmt.Sprintf("%d more bytes of %d streams", bytes, len(streams)), func(context.Context) error {
		for i, h := range streams {
			select {
			case <-h.ended:
				return fmt.Errorf("a stream to %s has ended: %w", h.provider, h.err)
			default:
			}
			if left := want[i] - h.sent.Load(); left > 0 {
				return fmt.Errorf("a stream to %s lacks %d", h.provider, left)
			}
		}
		return nil
	})
}

// retransmits adds up what the senders' kernels count.
func retransmits(streams []*heavy) (n uint32) {
	for _, h := range streams {
		n += retransmitted(h.conn)
	}
	return n
}
