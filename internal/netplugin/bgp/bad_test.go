package bgp

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// visitor takes the connections that the speaker makes to 127.0.0.9, and does with
// them what do says.
func visitor(t *testing.T, do func(net.Conn)) uint16 {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			_ = c.Close() // it may have ended
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended }) // it was made to be closed
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// A neighbor that never gets a session is reported with the reason, and another neighbor's
// session does not suffer.
func TestNeighborsWithoutASessionAreReported(t *testing.T) {
	hello := func(as uint32, hold uint16) []byte {
		m := (&router{t: t, as: as, addr: netip.MustParseAddr("127.0.0.9")}).hello()
		m.Body.(*bgp.BGPOpen).HoldTime = hold
		b, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	drain := func(c net.Conn) {
		for b := make([]byte, 4096); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		do   func(net.Conn)
		want string
	}{
		"another number": {func(c net.Conn) { _, _ = c.Write(hello(65066, 60)); drain(c) }, "its AS number is not 4200000500, as configured"},
		"half an OPEN":   {func(c net.Conn) { _, _ = c.Write(hello(routerAS, 60)[:25]); drain(c) }, "it took the connection and said nothing yet"},
		"hold time 1":    {func(c net.Conn) { _, _ = c.Write(hello(routerAS, 1)); drain(c) }, "ended by this host: code 2(open) subcode 6(unacceptable hold time)"},
		"a length of 18": {func(c net.Conn) { b := hello(routerAS, 60); b[17] = 18; _, _ = c.Write(b); drain(c) }, "it sent what is no BGP"},
		"nonsense":       {func(c net.Conn) { _, _ = c.Write(slices.Repeat([]byte("GET / HTTP/1.1\r\n"), 4)); drain(c) }, "it sent what is no BGP"},
		"silence":        {drain, "it took the connection and said nothing yet"},
		"hangs up":       {func(net.Conn) {}, "it took the connection and ended it"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, 1, nil, Options{})
			good := connect(t, "127.0.0.2", routerAS, h)
			good.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
			cfg := h.cfg
			cfg.Neighbors = append(slices.Clone(cfg.Neighbors), Neighbor{Address: netip.MustParseAddr("127.0.0.9"), AS: routerAS, Port: visitor(t, c.do)})
			if err := h.Configure(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			h.peer("127.0.0.9", c.want, func(p PeerState) bool { return strings.HasPrefix(p.Problem, c.want) && p.State != Established })
			h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
			if p := h.peer("127.0.0.2", "a session", established); p.Flaps != 0 {
				t.Errorf("the good neighbor: %+v", p)
			}
			h.close(false) // before the visitor waits for its connection's end
		})
	}
}

// A neighbor that is not there, or does not listen.
func TestMissingNeighborIsReported(t *testing.T) {
	h := start(t, 1, nil, Options{})
	h.peer("127.0.0.2", "why not", func(p PeerState) bool {
		return strings.Contains(p.Problem, "connection refused") && p.State != Established && p.Flaps == 0
	})
}

// Of a neighbor with another password, or none, nothing is heard at all.
func TestWrongPasswordGetsNoSession(t *testing.T) {
	port := visitor(t, func(net.Conn) { t.Error("a connection") })
	h := start(t, 0, func(c *Config) {
		c.Neighbors = []Neighbor{{Address: netip.MustParseAddr("127.0.0.9"), AS: routerAS, Port: port, Password: "secret"}}
	}, Options{})
	h.peer("127.0.0.9", "why not", func(p PeerState) bool { return strings.Contains(p.Problem, "or has another password") })
}

// A session that works ends by nonsense in it, and comes back.
func TestSessionRecoversFromNonsense(t *testing.T) {
	marksStale(t)
	h := start(t, 2, nil, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16", "10.3.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2 10.9.0.3", "10.3.0.0/16": "10.9.0.3"})
	if _, err := one.connection().Write([]byte(strings.Repeat("nonsense", 8))); err != nil {
		t.Fatal(err)
	}
	one.until("a notification", func() bool {
		return one.notified != nil && one.notified.ErrorCode == bgp.BGP_ERROR_MESSAGE_HEADER_ERROR
	})
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.3", "10.3.0.0/16": "10.9.0.3"})
	p := h.peer("127.0.0.2", "its end", func(p PeerState) bool { return p.Flaps == 1 })
	if p.WhyDown == "" || p.Down.IsZero() || time.Since(p.Down) < 0 {
		t.Errorf("state %+v", p)
	}
	one.hangUp()
	one.dial(h.at)
	one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2 10.9.0.3", "10.3.0.0/16": "10.9.0.3"})
}

// An update that is malformed takes back what it names and leaves the session (RFC 7606).
func TestMalformedUpdateWithdrawsItsRoutes(t *testing.T) {
	h := start(t, 1, nil, Options{})
	r := connect(t, "127.0.0.2", routerAS, h)
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16", "10.3.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2", "10.3.0.0/16": "10.9.0.2"})
	r.send(bgp.NewBGPUpdateMessage(nil, []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(77)}, nlri(t, []string{"10.3.0.0/16"})))
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	if p := h.peer("127.0.0.2", "a session", established); p.Flaps != 0 {
		t.Errorf("state %+v", p)
	}
}
