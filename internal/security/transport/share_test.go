package transport

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 3 * time.Minute

// dialFrom connects to a listener from an address of the loopback; nil = it is closed
// already.
func dialFrom(t *testing.T, from string, to net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", to.String())
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// answered reports whether a connection is served, which is a byte; else it was closed.
func answered(t *testing.T, c net.Conn) bool {
	t.Helper()
	if c == nil {
		return false
	}
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("neither served nor closed: %v", err)
	}
	return err == nil
}

// Over two listeners an address has its share of connections, and others have the rest. The
// newest connection beyond is closed at once, which is logged once, and each connection
// that ends makes room.
func TestAddressesHaveAShareOfConnections(t *testing.T) {
	s := newShares(8) // six of one
	var told bytes.Buffer
	log := slog.New(slog.NewTextHandler(&told, nil))
	var running sync.WaitGroup
	var addrs []net.Addr
	var lns []net.Listener
	for range 2 {
		raw, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // of this machine
		if err != nil {
			t.Fatal(err)
		}
		ln := s.listen(raw, log)
		lns, addrs = append(lns, ln), append(addrs, ln.Addr())
		running.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				running.Go(func() {
					_, _ = c.Write([]byte{1})
					_, _ = io.Copy(io.Discard, c) // until the client closes it
					_, _ = c.Close(), c.Close()   // as net/http may
				})
			}
		})
	}
	t.Cleanup(func() { // when the clients' connections are closed
		for _, ln := range lns {
			_ = ln.Close()
		}
		running.Wait()
		if open, _ := s.InUse(netip.Prefix{}); open != 0 {
			t.Errorf("%d are open when all are closed", open)
		}
		if n := strings.Count(told.String(), "\n"); n != 1 || !strings.Contains(told.String(), "last=127.0.0.1/32") {
			t.Errorf("told %d times: %s", n, told.String())
		}
	})
	var first net.Conn
	for i := range 6 {
		c := dialFrom(t, "127.0.0.1", addrs[i%2])
		if !answered(t, c) {
			t.Fatalf("connection %d of an address is closed", i)
		}
		first = c
	}
	for range 5 {
		if answered(t, dialFrom(t, "127.0.0.1", addrs[0])) {
			t.Error("a seventh connection of an address is served")
		}
	}
	for range 2 {
		if !answered(t, dialFrom(t, "127.0.0.2", addrs[1])) {
			t.Error("another address has no place")
		}
	}
	if answered(t, dialFrom(t, "127.0.0.3", addrs[1])) {
		t.Error("a ninth connection of all is served")
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	for deadline := time.Now().Add(patience); !answered(t, dialFrom(t, "127.0.0.1", addrs[0])); {
		if time.Now().After(deadline) {
			t.Fatal("one that ended made no room")
		}
	}
}

// A process keeps descriptors for the rest of it.
func TestProcessKeepsDescriptors(t *testing.T) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	all := uint64(0)
	for k, p := range process() {
		of, one := p.Limits()
		if all += uint64(of); one >= of || of > MaxConnections {
			t.Errorf("kind %d: %d connections, %d of one address", k, of, one)
		}
	}
	if _, one := newShares(MaxConnections).Limits(); all > l.Cur/8*7 || one < 12000 {
		t.Errorf("%d connections of %d descriptors", all, l.Cur)
	}
}

// Listeners count their connections, each kind for itself.
func TestListenersCountTheirConnections(t *testing.T) {
	ln, err := ListenAs(t.Context(), Peers, "127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	openOf := func(k Kind) int {
		open, _ := process()[k].InUse(netip.Prefix{})
		return open
	}
	open := func() int { return openOf(Peers) }
	before, asked := open(), openOf(Asked)
	dialFrom(t, "127.0.0.1", ln.Addr())
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n := open(); n != before+1 || openOf(Asked) != asked {
		t.Errorf("%d are open, %d were; of another kind %d, %d were", n, before, openOf(Asked), asked)
	}
	_ = c.Close()
	if n := open(); n != before {
		t.Errorf("%d are open when it is closed, %d were", n, before)
	}
}
