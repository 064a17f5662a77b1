package hoststack

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestContainerBeyondItsShareOfPortsIsBlocked: a container with more than its share of the ports towards a service
// keeps its share, answered connections first, and begins no connection to that
// service for a minute; it begins connections to other services, and other containers
// to that one.
func TestContainerBeyondItsShareOfPortsIsBlocked(t *testing.T) {
	eachFamily(t, sharesPorts)
	eachNative(t, sharesPorts)
}

func sharesPorts(t *testing.T, s *site, web, other, far netip.Addr) {
	t.Helper()
	for _, port := range []uint16{7, 8} { // answer what asks
		socket := s.listenUDP(s.beyond, netip.AddrPortFrom(far, port))
		go func() {
			b := make([]byte, 100)
			for {
				n, from, err := socket.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				if string(b[:n]) == "?" {
					_, _ = socket.WriteToUDPAddrPort(b[:n], from)
				}
			}
		}()
	}
	const long, short = 10 * time.Second, 300 * time.Millisecond
	var log bytes.Buffer
	clock := time.Now()
	g := NewGuard(slog.New(slog.NewTextHandler(&log, nil)), NoRepairs)
	g.sources.share, g.sources.now = 50, func() time.Time { return clock }
	look := func() {
		t.Helper()
		if err := in(t, s.host, func() error { return g.Check(t.Context(), s.want.Private, s.want.Routed) }); err != nil {
			t.Fatal(err)
		}
	}
	ports := func() (n int) {
		t.Helper()
		if err := in(t, s.host, func() error {
			return eachTracked(func(c trackedConnection) bool {
				if c.src == web && c.to.port == 7 {
					n++
				}
				return true
			})
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	old := s.dialUDP(web, 7)
	if !s.answers(old, long) {
		t.Fatal("egress does not work")
	}
	look()
	if !s.answers(s.dialUDP(web, 7), long) {
		t.Fatal("a container with few connections is kept from a service")
	}
	for range 80 { // nothing comes back on these
		if _, err := s.dialUDP(web, 7).Write([]byte("!")); err != nil {
			t.Fatal(err)
		}
	}
	if n := ports(); n < 80 {
		t.Fatalf("%d connections to the service, too few for the test", n)
	}
	look()
	if n := ports(); n != g.sources.share {
		t.Errorf("%d connections to the service are left, not its share, %d", n, g.sources.share)
	}
	if !s.answers(old, long) {
		t.Error("an answered connection does not go on, where unanswered ones could have gone")
	}
	if !strings.Contains(log.String(), web.String()) || strings.Contains(log.String(), other.String()) {
		t.Errorf("the log says\n%s", &log)
	}
	if s.answers(s.dialUDP(web, 7), short) {
		t.Error("the container that crowds the service begins another connection to it")
	}
	if !s.answers(s.dialUDP(web, 8), long) || !s.answers(s.dialUDP(other, 7), long) {
		t.Error("the container begins no connection to another service, or another container none to this one")
	}
	look()
	clock = clock.Add(banTime + time.Second)
	look()
	if !s.answers(s.dialUDP(web, 7), long) {
		t.Error("a minute later the container begins no connection to the service")
	}
}
