package bgp

import (
	"strings"
	"testing"
)

// A neighbor whose session comes and goes is counted, and another one's routes and session
// do not suffer.
func TestFlappingNeighborHarmsNoOther(t *testing.T) {
	marksStale(t)
	h := start(t, 2, nil, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16", "10.3.0.0/16")
	both := map[string]string{"10.2.0.0/16": "10.9.0.2 10.9.0.3", "10.3.0.0/16": "10.9.0.3"}
	for i := range uint64(3) {
		one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
		h.learns(both)
		one.hangUp()
		p := h.peer("127.0.0.2", "its end", func(p PeerState) bool { return p.Flaps == i+1 && p.State != Established })
		if !strings.HasPrefix(p.Problem, "the connection was lost") || p.Down.IsZero() || p.WhyDown != p.Problem {
			t.Errorf("flap %d: %+v", i, p)
		}
		if hops := h.Routes().Routes; len(hops) != 2 {
			t.Errorf("flap %d: routes %v", i, hops)
		}
		one.dial(h.at)
	}
	one.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(both)
	if p := h.peer("127.0.0.2", "a session", established); p.Flaps != 3 || p.Problem != "" {
		t.Errorf("it: %+v", p)
	}
	if p := h.peer("127.0.0.3", "a session", established); p.Flaps != 0 {
		t.Errorf("the other: %+v", p)
	}
}

// What the host announces itself is refused as its own, protected or not.
func TestOwnRatherThanProtected(t *testing.T) {
	h := start(t, 1, func(c *Config) { c.Protected = append(c.Protected, a("10.7.0.0/16", "127.0.0.1").Prefix) }, Options{})
	h.announce(a("10.7.0.9/32", "127.0.0.1"))
	r := connect(t, "127.0.0.2", routerAS, h)
	r.tell(way{hop: "10.9.0.2"}, "10.7.0.9/32", "10.7.0.8/32", "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	h.peer("127.0.0.2", "why", func(p PeerState) bool { return p.Why[ReasonOwn] == 1 && p.Why[ReasonProtected] == 1 })
}
