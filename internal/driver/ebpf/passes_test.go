package ebpf

import (
	"testing"

	"github.com/contiv/netplugin/v2/internal/oracle"
)

// lose takes all connections out, so that b's answers pass by their short ways only: b
// begins nothing that a lets in.
func (c *crowded) lose(t *testing.T) {
	t.Helper()
	c.keepShortWays(t)
	c.drv.mu.Lock()
	defer c.drv.mu.Unlock()
	if err := c.drv.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
		t.Fatal(err)
	}
}

// TestOneDirectionOpensBoth: once both ends take part in a connection, what was decided
// about a packet of one is enough for the other one's; before, or for another
// connection of the same two, it is not.
func TestOneDirectionOpensBoth(t *testing.T) {
	c := newCrowded(t, nil)
	answer := func(port uint16) [][]byte { return c.segments(c.a, port, 1, oracle.FlagACK, true) }
	c.connect("of which an answer has made the lane", c.a, 10000, 1)
	c.all("an answer", c.b, answer(10000))
	c.connect("without an answer", c.a, 11000, 1)
	c.all("a request", c.a, c.segments(c.a, 12000, 1, oracle.FlagSYN, false))
	c.all("what follows it unanswered", c.a, c.segments(c.a, 12000, 1, oracle.FlagACK, false))
	c.lose(t)
	for port, want := range map[uint16]int{10000: 1, 11000: 1, 12000: 0, 13000: 0} {
		if got := c.pass(c.b, answer(port)); got != want {
			t.Errorf("of the answers to port %d %d pass, want %d", port, got, want)
		}
	}
}

// TestNextConnectionIsJudged: a connection that begins in the place of one that has
// ended has no short way of its, in neither direction.
func TestNextConnectionIsJudged(t *testing.T) {
	c := newCrowded(t, nil)
	answer := c.segments(c.a, 10000, 1, oracle.FlagACK, true)
	c.connect("the first", c.a, 10000, 1)
	c.all("an answer", c.b, answer)
	c.all("its end", c.a, c.segments(c.a, 10000, 1, oracle.FlagRST, false))
	c.all("the next one's request", c.a, c.segments(c.a, 10000, 1, oracle.FlagSYN, false))
	c.lose(t)
	if got := c.pass(c.b, answer); got != 0 {
		t.Error("an answer takes the short way of the connection before")
	}
}
