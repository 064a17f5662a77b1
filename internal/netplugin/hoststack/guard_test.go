package hoststack

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

// TestContainerThatFillsConntrackLosesItsOwn: a container that fills the host's connection tracking loses its
// unanswered connections and begins no more, until there is room again; its answered
// connections and everybody else's go on.
func TestContainerThatFillsConntrackLosesItsOwn(t *testing.T) {
	eachFamily(t, guardsTracking)
	eachNative(t, guardsTracking)
}

func guardsTracking(t *testing.T, s *site, web, other, far netip.Addr) {
	t.Helper()
	echo := s.listenUDP(s.beyond, netip.AddrPortFrom(far, 7))
	inside := func(ns string, fn func() error) {
		t.Helper()
		if err := in(t, ns, fn); err != nil {
			t.Fatal(err)
		}
	}
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
	const long, short = 10 * time.Second, 300 * time.Millisecond
	var log bytes.Buffer
	g := NewGuard(slog.New(slog.NewTextHandler(&log, nil)), NoRepairs)
	g.most = 100
	look := func() {
		t.Helper()
		inside(s.host, func() error { return g.Check(t.Context(), s.want.Private, s.want.Routed) })
	}
	tracked := func() (n int) {
		t.Helper()
		inside(s.host, func() (err error) { n, _, err = g.connectionRoom(); return err })
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
	old := s.dialUDP(web, 7)
	look()
	if !s.answers(old, long) || !s.answers(s.dialUDP(other, 7), long) || guarded() {
		t.Fatal("egress does not work, or is guarded, with room")
	}
	for i := range uint16(150) { // where no process listens
		c := s.dialUDP(web, 20000+i)
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
	if !s.answers(old, long) {
		t.Error("an answered connection of the container that fills the table does not go on")
	}
	if s.answers(s.dialUDP(web, 7), short) {
		t.Error("the container that fills the table begins another connection")
	}
	if !s.answers(s.dialUDP(other, 7), long) {
		t.Error("another container cannot begin a connection")
	}
	if n := tracked(); n > 20 {
		t.Errorf("%d connections are tracked after the unanswered ones have gone", n)
	}
	look()
	if guarded() || !s.answers(s.dialUDP(web, 7), long) {
		t.Errorf("with room again, guarded: %v, or the container begins no connection", guarded())
	}
	// What a process that died left behind goes with the next one's first look.
	g.banned, g.looked = nil, false
	inside(s.host, func() error { return g.setBans(s.want.Private, []netip.Addr{web}) })
	g = NewGuard(slog.New(slog.DiscardHandler), NoRepairs)
	look()
	if guarded() {
		t.Error("a new guard leaves an old one's table")
	}
	// Deleted rules are restored after an event.
	g.most = 1
	if !s.answers(s.dialUDP(web, 7), long) {
		t.Error("nobody answers before the guard looks")
	}
	look()
	if !guarded() {
		t.Fatal("nobody is barred while there is no room")
	}
	inside(s.host, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		for _, table := range tables {
			if table.Name == GuardTable {
				c.DelTable(table)
			}
		}
		return errors.Join(err, c.Flush())
	})
	g.NoteTableLost()
	look()
	if !guarded() {
		t.Error("a table that somebody deleted is not put back")
	}
}
