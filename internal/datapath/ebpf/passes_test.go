package ebpf

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// lose takes all connections out, so that b's answers pass by the fast path only: b
// begins nothing that a lets in.
func (c *crowded) lose(t *testing.T) {
	t.Helper()
	c.keepShortWays(t)
	c.drv.mu.Lock()
	defer c.drv.mu.Unlock()
	if err := c.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
		t.Fatal(err)
	}
}

// TestOneDirectionOpensBoth: once both ends take part in a connection, what was decided
// about a packet of one is enough for the other one's; before, or for another
// connection of the same two, it is not.
func TestOneDirectionOpensBoth(t *testing.T) {
	c := newCrowded(t, nil)
	answer := func(port uint16) [][]byte { return c.segments(c.a, port, 1, reference.FlagACK, true) }
	c.connect("of which an answer has made the forward entry", c.a, 10000, 1)
	c.all("an answer", c.b, answer(10000))
	c.connect("without an answer", c.a, 11000, 1)
	c.all("a request", c.a, c.segments(c.a, 12000, 1, reference.FlagSYN, false))
	c.all("what follows it unanswered", c.a, c.segments(c.a, 12000, 1, reference.FlagACK, false))
	c.lose(t)
	for port, want := range map[uint16]int{10000: 1, 11000: 1, 12000: 0, 13000: 0} {
		if got := c.pass(c.b, answer(port)); got != want {
			t.Errorf("of the answers to port %d %d pass, want %d", port, got, want)
		}
	}
}

// TestNextConnectionIsJudged: a connection that begins in the place of one that has
// ended has no entry of the fast path, in neither direction.
func TestNextConnectionIsJudged(t *testing.T) {
	c := newCrowded(t, nil)
	answer := c.segments(c.a, 10000, 1, reference.FlagACK, true)
	c.connect("the first", c.a, 10000, 1)
	c.all("an answer", c.b, answer)
	c.all("its end", c.a, c.segments(c.a, 10000, 1, reference.FlagRST, false))
	c.all("the next one's request", c.a, c.segments(c.a, 10000, 1, reference.FlagSYN, false))
	c.lose(t)
	if got := c.pass(c.b, answer); got != 0 {
		t.Error("an answer takes the fast path by the connection before")
	}
}

// TestCachedVerdictsCountForTenSeconds: what was decided counts for ten seconds, whatever the kernel's ticks are.
func TestCachedVerdictsCountForTenSeconds(t *testing.T) {
	c := newCrowded(t, nil)
	last := func() (until uint64, at time.Time) {
		at = time.Now()
		c.connect("a connection", c.a, 10000, 1)
		for _, set := range takenPlaces(t, c.drv.dp.obj.VerdictCache) {
			for way := range slices.Chunk(set, passBytes) {
				until = max(until, binary.NativeEndian.Uint64(way[liveUntil:]))
			}
		}
		return until, at
	}
	first, begun := last()
	var second, age float64
	for second < 1 { // of the time that the programs count
		c.all("its end", c.a, c.segments(c.a, 10000, 1, reference.FlagRST, false))
		until, now := last()
		second, age = now.Sub(begun).Seconds(), float64(until-first)
	}
	var ticks uint32
	if err := c.drv.dp.obj.FastTicks.Get(&ticks); err != nil {
		t.Fatal(err)
	}
	if lasts := float64(ticks) * second / age; lasts < 9 || lasts > 11 {
		t.Errorf("it counts for %.1f s", lasts)
	}
}

// TestClosingPacketsTakeTheFastPath: what ends a connection takes the fast path, and is noted in the
// connection's entry; without one it is judged.
func TestClosingPacketsTakeTheFastPath(t *testing.T) {
	c := newCrowded(t, nil)
	const fin, ack = reference.FlagFIN, reference.FlagACK
	c.connect("a connection", c.a, 10000, 1)
	c.all("an answer", c.b, c.segments(c.a, 10000, 1, ack, true))
	if err := emptyMap(c.drv.dp.obj.Stations); err != nil { // without which the slow path lets nothing by
		t.Fatal(err)
	}
	state := func() (s uint8) {
		for _, v := range c.conns() {
			s |= v.State
		}
		return s & (connFin | connFinReply)
	}
	c.all("the end of who asked", c.a, c.segments(c.a, 10000, 1, fin|ack, false))
	if got := state(); got != connFin {
		t.Errorf("after who asked has ended it, its state is %#x", got)
	}
	c.all("the other end", c.b, c.segments(c.a, 10000, 1, fin|ack, true))
	if got := state(); got != connFin|connFinReply {
		t.Errorf("after both have ended it, its state is %#x", got)
	}
	c.lose(t)
	c.all("an acknowledgement", c.a, c.segments(c.a, 10000, 1, ack, false))
	if n := c.pass(c.a, c.segments(c.a, 10000, 1, fin|ack, false)); n != 0 {
		t.Error("the end of a connection that is gone takes the fast path")
	}
}
