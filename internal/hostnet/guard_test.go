package hostnet

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestGuard: a container that fills the host's connection tracking loses its
// unanswered connections and begins no more, its answered ones and everybody
// else's go on, and when there is room again it may.
func TestGuard(t *testing.T) {
	s := newSite(t)
	if p := s.apply(); len(p) > 0 {
		t.Fatal(p)
	}
	var echo net.PacketConn
	inside := func(ns string, fn func() error) {
		t.Helper()
		if err := in(t, ns, fn); err != nil {
			t.Fatal(err)
		}
	}
	inside(s.beyond, func() (err error) {
		echo, err = net.ListenPacket("udp4", net.JoinHostPort(far.String(), "7")) //nolint:noctx // a packet socket waits for nothing
		return err
	})
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := echo.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(b[:n], from)
		}
	}()
	dial := func(from netip.Addr, port uint16) (conn net.Conn) {
		t.Helper()
		inside(s.conts, func() (err error) {
			conn, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(far, port)))
			return err
		})
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	answers := func(c net.Conn, wait time.Duration) bool {
		t.Helper()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := c.Read(make([]byte, 10))
		return err == nil
	}
	const long, short = 10 * time.Second, 300 * time.Millisecond
	var log bytes.Buffer
	g := NewGuard(slog.New(slog.NewTextHandler(&log, nil)))
	g.most = 100
	look := func() {
		t.Helper()
		inside(s.host, func() error { return g.Look(t.Context(), s.want.Private) })
	}
	tracked := func() (n int) {
		t.Helper()
		inside(s.host, func() (err error) { n, _, err = g.room(); return err })
		return n
	}
	guarded := func() (yes bool) {
		t.Helper()
		inside(s.host, func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			tables, err := c.ListTables()
			yes = slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == GuardTable })
			return err
		})
		return yes
	}
	old := dial(web, 7)
	look()
	if !answers(old, long) || !answers(dial(other, 7), long) || guarded() {
		t.Fatal("the way out does not work, or is guarded, with room")
	}
	for i := range uint16(150) { // where nobody listens
		c := dial(web, 20000+i)
		if _, err := fmt.Fprint(c, "?"); err != nil && i == 0 {
			t.Fatal(err)
		}
	}
	if n := tracked(); n < 80 {
		t.Fatalf("%d connections are tracked, too few for the test", n)
	}
	look()
	if !guarded() || !strings.Contains(log.String(), web.String()) || strings.Contains(log.String(), other.String()) {
		t.Fatalf("guarded: %v; the log says\n%s", guarded(), &log)
	}
	if !answers(old, long) {
		t.Error("an answered connection of the container that fills the table does not go on")
	}
	if answers(dial(web, 7), short) {
		t.Error("the container that fills the table begins another connection")
	}
	if !answers(dial(other, 7), long) {
		t.Error("another container cannot begin a connection")
	}
	if n := tracked(); n > 20 {
		t.Errorf("%d connections are tracked after the unanswered ones have gone", n)
	}
	look()
	if guarded() || !answers(dial(web, 7), long) {
		t.Errorf("with room again, guarded: %v, or the container begins no connection", guarded())
	}
	// What a process that died left behind goes with the next one's first look.
	g.barred, g.looked = nil, false
	inside(s.host, func() error { return g.bar(s.want.Private, []netip.Addr{web}) })
	g = NewGuard(slog.New(slog.DiscardHandler))
	look()
	if guarded() {
		t.Error("a new guard leaves an old one's table")
	}
}
