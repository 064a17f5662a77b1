//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// stream is a TCP connection on which bytes flow steadily until it is closed.
type stream struct {
	out, in net.Conn
	wg      sync.WaitGroup

	mu       sync.Mutex
	received int       // bytes
	last     time.Time // of the last of them
	stall    time.Duration
	err      error // of the receiver, when it has ended by itself
}

// The stream's rate leaves a busy machine room: 20 Mbit/s, or what a cluster's
// load multiplies it by.
const (
	chunk = 8 << 10
	pace  = 3200 * time.Microsecond
)

// connect opens a TCP connection between two containers and returns both ends.
func (c *cluster) connect(ctx context.Context, from, to, family string) (out, in net.Conn, err error) {
	var ln net.Listener
	err = c.space(to).Do(func() (err error) {
		ln, err = new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(c.addr(to, family), 5201).String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	var g errgroup.Group
	g.Go(func() (err error) { in, err = ln.Accept(); return err })
	if out, err = c.space(from).Dial(ctx, "tcp", ln.Addr().String()); err != nil {
		return nil, nil, errors.Join(err, ln.Close(), g.Wait())
	}
	return out, in, g.Wait()
}

// stream starts a stream from c to s.
func (c *cluster) stream(ctx context.Context) (*stream, error) {
	out, in, err := c.connect(ctx, "c", "s", "4")
	if err != nil {
		return nil, err
	}
	s := &stream{out: out, in: in, last: time.Now()}
	s.wg.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		buf := make([]byte, chunk*max(c.load, 1))
		for range tick.C {
			if _, err := out.Write(buf); err != nil {
				return // closed, or broken: then the receiver tells
			}
		}
	})
	s.wg.Go(func() {
		buf := make([]byte, 1<<20)
		for {
			n, err := in.Read(buf)
			s.mu.Lock()
			s.got(n)
			s.err = err
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	return s, nil
}

// got counts bytes; s.mu is held.
func (s *stream) got(n int) {
	now := time.Now()
	s.stall = max(s.stall, now.Sub(s.last))
	s.last, s.received = now, s.received+n
}

// more waits until so many more bytes have arrived: the traffic goes on while
// something happens.
func (s *stream) more(ctx context.Context, bytes int) error {
	s.mu.Lock()
	want := s.received + bytes
	s.mu.Unlock()
	return testcluster.Until(ctx, fmt.Sprintf("%d more bytes at s", bytes), func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			return fmt.Errorf("the stream has ended: %w", s.err)
		}
		if s.received < want {
			return fmt.Errorf("%d are missing", want-s.received)
		}
		return nil
	})
}

// close ends the stream and returns the longest time without a byte, the time
// until now included.
func (s *stream) close() time.Duration {
	s.mu.Lock()
	s.got(0)
	longest := s.stall
	s.mu.Unlock()
	_ = s.out.Close() // nothing is waited for
	_ = s.in.Close()
	s.wg.Wait()
	return longest
}

// retransmitted is how many segments the sender's kernel has sent again (tcp(7), TCP_INFO).
func retransmitted(out net.Conn) (n uint32) {
	raw, err := out.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // fails when it is closed: what was counted has been read before
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n
}

// traffic keeps a TCP stream and pings every 10 ms, over both families and on
// one host, going while do runs. It returns the stream's longest stall and the
// pings' fate.
func (c *cluster) traffic(do func(ctx context.Context, s *stream) error) (time.Duration, map[string]testcluster.PingStats) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*time.Minute)
	defer cancel()
	pinging, stop := context.WithCancel(ctx)
	defer stop()
	s, err := c.stream(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	names := []string{"across hosts", "across hosts, IPv6", "on one host"}
	stats := make([]testcluster.PingStats, len(names))
	var pings errgroup.Group
	for i, to := range []struct{ name, family string }{{"s", "4"}, {"s", "6"}, {"near", "4"}} {
		pings.Go(func() (err error) {
			stats[i], err = c.space("c").Ping(pinging, c.addr(to.name, to.family), 10*time.Millisecond)
			return err
		})
	}
	start := time.Now()
	if err := do(ctx, s); err != nil {
		c.t.Error(err)
	}
	stop()
	if err := pings.Wait(); err != nil {
		c.t.Error(err)
	}
	out := map[string]testcluster.PingStats{}
	for i, n := range names {
		out[n] = stats[i]
		c.t.Logf("ping every 10 ms %s: %s", n, stats[i])
	}
	again := retransmitted(s.out)
	stall := s.close()
	c.t.Logf("TCP: %.1f MB in %.1f s, %d retransmits, longest stall %v", float64(s.received)/1e6, time.Since(start).Seconds(), again, stall.Round(time.Millisecond))
	return stall, out
}

// TestBulkTransfersArriveWhole sends as much as TCP can, both ways, over both families, on one host
// and across hosts, on a VXLAN and on a VLAN network, and checks every byte: the
// encapsulations of all drivers understand each other with whole and partial
// checksums, and what one host lets grow another one takes.
func TestBulkTransfersArriveWhole(t *testing.T) { onOne(t, all, bulk) }

func bulk(t *testing.T, driver string) {
	c := up(t, driver, "bulk", 2)
	c.netctl("tenant create blue",
		"network create -t blue -e vxlan -s 10.1.1.0/24 --subnetv6 fd00:1::/64 vx",
		"network create -t blue -e vlan -s 10.1.2.0/24 --subnetv6 fd00:2::/64 vl")
	c.add(spec("x1", "h1", "blue/vx"), spec("y1", "h1", "blue/vx"), spec("x2", "h2", "blue/vx"), spec("y2", "h2", "blue/vx"),
		spec("v1", "h1", "blue/vl"), spec("v2", "h2", "blue/vl"))
	for _, pair := range [][2]string{{"x1", "x2"}, {"x2", "x1"}, {"v1", "v2"}, {"v2", "v1"}, {"x1", "y1"}, {"x2", "y2"}} {
		for _, family := range []string{"4", "6"} {
			took, err := c.send(pair[0], pair[1], family, 32<<20)
			if err != nil {
				t.Errorf("%s to %s, IPv%s: %v", pair[0], pair[1], family, err)
				continue
			}
			t.Logf("%s to %s, IPv%s: %.2f Gbit/s", pair[0], pair[1], family, float64(32<<20)*8/took.Seconds()/1e9)
		}
	}
}

// send sends bytes that tell their place, and checks that all of them arrive.
func (c *cluster) send(from, to, family string, bytes int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	out, in, err := c.connect(ctx, from, to, family)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	defer in.Close()
	end, _ := ctx.Deadline()
	if err := errors.Join(out.SetDeadline(end), in.SetDeadline(end)); err != nil {
		return 0, err
	}
	const period = 251 * 1021 // bytes repeat after a prime number of them: what is out of place by packets differs
	pattern := make([]byte, period)
	for i := range pattern {
		pattern[i] = byte(i % 251)
	}
	start := time.Now()
	var g errgroup.Group
	g.Go(func() error {
		for sent := 0; sent < bytes; sent += period {
			if _, err := out.Write(pattern[:min(period, bytes-sent)]); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		buf := make([]byte, period)
		for got := 0; got < bytes; got += period {
			part := buf[:min(period, bytes-got)]
			if _, err := io.ReadFull(in, part); err != nil {
				return fmt.Errorf("after %d bytes: %w", got, err)
			}
			for i, b := range part {
				if b != byte(i%251) {
					return fmt.Errorf("byte %d is %d, want %d", got+i, b, i%251)
				}
			}
		}
		return nil
	})
	err = g.Wait()
	return time.Since(start), err
}
