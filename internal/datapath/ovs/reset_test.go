package ovs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSourcePortIsUsableAfterReset connects again and again from one source port while
// connections end by RST: a SYN reopens a connection that is closed (RFC 9293, 3.6.1).
func TestSourcePortIsUsableAfterReset(t *testing.T) {
	for _, c := range []struct {
		name           string
		client, server func(*net.TCPConn) // how each end closes
	}{
		{"the server resets", wait, sendReset},
		{"the client resets", sendReset, wait},
		{"both reset", sendReset, sendReset},
		{"the server closes with data unread", wait, closeUnread},
		{"the server resets after the client's FIN", finish, sendReset},
		{"the client resets after the server's FIN", sendReset, finish},
	} {
		for _, service := range []bool{false, true} {
			name := c.name
			if service {
				name += ", by a service"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testReset(t, c.client, c.server, service)
			})
		}
	}
}

func testReset(t *testing.T, client, server func(*net.TCPConn), service bool) {
	t.Helper()
	l := newLive(t, 2)
	defer l.drv.Close()
	to := netip.AddrPortFrom(l.boxes[1].port.IPv4, 8080)
	if service {
		s := l.served(200, l.boxes[1])
		l.serve(t, s)
		to = netip.AddrPortFrom(s.IPv4, 80)
	}
	ln := l.listenTCP(t, l.boxes[1], 8080)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		for {
			conn, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			wg.Go(func() {
				_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
				_, _ = io.ReadFull(conn, make([]byte, 1))
				server(conn)
			})
		}
	})
	for i := range 60 {
		conn, err := l.dialFrom(l.boxes[0], 33000, to, 4*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v\n%s", i, err, grep(l.Appctl("dpctl/dump-conntrack"), "33000"))
		}
		_, _ = conn.Write([]byte("hello"))
		client(conn)
	}
}

// wait reads until the other end is gone.
func wait(c *net.TCPConn) {
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.Copy(io.Discard, c)
	sendReset(c)
}

func sendReset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func closeUnread(c *net.TCPConn) {
	_, _ = c.Write([]byte("answer"))
	_ = c.Close()
}

// finish sends FIN and waits until the other end is gone.
func finish(c *net.TCPConn) {
	_ = c.CloseWrite()
	wait(c)
}

// listenTCP opens a socket in a box; who opens it closes it.
func (l *live) listenTCP(t testing.TB, b *box, port int) *net.TCPListener {
	t.Helper()
	var ln *net.TCPListener
	if err := inNamespace(b.ns, func() (err error) {
		ln, err = net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return ln
}

// dialFrom connects from a given port of a box.
func (l *live) dialFrom(from *box, port int, to netip.AddrPort, timeout time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{
		Timeout: timeout, LocalAddr: &net.TCPAddr{IP: from.port.IPv4.AsSlice(), Port: port},
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			return c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		},
	}
	var c net.Conn
	err := inNamespace(from.ns, func() (err error) {
		for end := time.Now().Add(timeout); ; {
			c, err = d.DialContext(context.Background(), "tcp4", to.String())
			if !errors.Is(err, unix.EADDRNOTAVAIL) || time.Now().After(end) {
				return err // else the client's own stack has not let the port go
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("dial from port %d: %w", port, err)
	}
	return c.(*net.TCPConn), nil
}

func grep(text, word string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}
