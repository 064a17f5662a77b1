package bgp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// A neighbor whose updates are true but for some bytes takes nothing from another one,
// whatever is read in them, and what is learned of it goes with it; nothing of it covers
// what is protected.
func TestDamagedUpdatesHarmNoOtherNeighbor(t *testing.T) {
	marksStale(t)
	protected := netip.MustParsePrefix("10.7.0.0/16")
	h := start(t, 2, func(c *Config) { c.Protected = append(c.Protected, protected) }, Options{})
	one, two := connect(t, "127.0.0.2", routerAS, h), connect(t, "127.0.0.3", routerAS, h)
	two.tell(way{hop: "10.9.0.3"}, "10.2.0.0/16", "10.3.0.0/16")
	theirs := map[string]string{"10.2.0.0/16": "10.9.0.3", "10.3.0.0/16": "10.9.0.3"}
	h.learns(theirs)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
	true6 := one.announcement(way{hop: "fd00:9::2"}, []string{"fd00:2::/48"})
	// Behind each comes a true one, by which it shows what came of it.
	taken, ended := 0, 0
	for n := 0; n < 60 && ended < 3; n++ {
		h.peer("127.0.0.2", "a session", established)
		m := one.announcement(way{hop: "10.9.0.2"}, []string{"10.5.0.0/16", "10.6.0.0/24", "10.7.0.0/24"})
		if r.IntN(4) == 0 {
			m = true6
		}
		b, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			b[bgp.BGP_HEADER_LENGTH+r.IntN(len(b)-bgp.BGP_HEADER_LENGTH)] = byte(r.Uint32())
		}
		behind := fmt.Sprintf("10.4.%d.0/24", n)
		next, err := one.announcement(way{hop: "10.9.0.2"}, []string{behind}).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := one.connection().Write(slices.Concat(b, next)); err != nil {
			t.Fatal(err)
		}
		live := true
		h.peer("127.0.0.2", "what comes of a damaged update", func(p PeerState) bool {
			live = h.Routes().Routes[netip.MustParsePrefix(behind)] != nil
			return live || p.State != Established
		})
		if live {
			taken++
			continue
		}
		ended++
		one.hangUp()
		one.dial(h.at)
	}
	t.Logf("%d updates taken, %d sessions ended", taken, ended)
	if taken == 0 && ended == 0 {
		t.Error("nothing came of any")
	}
	for p := range h.Routes().Routes {
		if p.Overlaps(protected) {
			t.Errorf("%s is learned", p)
		}
	}
	one.send(goodbye())
	h.learns(theirs)
	if p := h.peer("127.0.0.3", "a session", established); p.Flaps != 0 || p.Problem != "" {
		t.Errorf("the other: %+v", p)
	}
}

// A neighbor that wants no keepalives (a hold time of 0, RFC 4271 section 4.2) has a
// session, which ends with its connection.
func TestHoldTimeZeroNeedsNoKeepalives(t *testing.T) {
	h := start(t, 1, nil, Options{})
	r := &router{t: t, addr: netip.MustParseAddr("127.0.0.2"), as: routerAS, still: true}
	r.dial(h.at)
	t.Cleanup(func() { h.close(false); r.hangUp() })
	r.tell(way{hop: "10.9.0.2"}, "10.2.0.0/16")
	h.learns(map[string]string{"10.2.0.0/16": "10.9.0.2"})
	if p := h.peer("127.0.0.2", "a session", established); p.Flaps != 0 || p.Problem != "" {
		t.Errorf("it: %+v", p)
	}
	r.send(goodbye())
	h.learns(map[string]string{})
}
