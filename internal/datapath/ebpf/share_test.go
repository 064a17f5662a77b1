package ebpf

import (
	"errors"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// crowded is a host with little room for connections, where a floods, b serves, and c is a
// third endpoint, which accepts no connection.
type crowded struct {
	*rig
	t       *testing.T
	pic     desired.Host
	a, b, c *desired.Port
}

func newCrowded(t *testing.T, sizes map[string]uint32) *crowded {
	t.Helper()
	r := newRig(t)
	r.sizes = sizes
	pic, a, b := r.neighbours(t)
	c := *a
	c.IfName, c.MAC, c.IPv4, c.IPv6 = "cvnc", model.MAC{2, 5, 0, 0, 0, 9}, containerIP4[0].Next().Next(), containerIP6[0].Next().Next()
	pic.Ports = pic.Ports.Set(c.IfName, &c)
	r.addWire(t, c.IfName, c.MAC)
	drv := r.open(t)
	t.Cleanup(func() { _ = drv.Close() })
	if rep, err := drv.Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
		t.Fatal(err, conformance.Failed(rep))
	}
	return &crowded{r, t, pic, a, b, &c}
}

// segments are n requests of one end to b, from ports counted up from first, or
// the answers to them.
func (c *crowded) segments(of *desired.Port, first uint16, n int, flags uint8, answers bool) (out [][]byte) {
	for i := range n {
		p := web(of, c.b, first+uint16(i%40000), 8000+uint16(i/40000))
		if answers {
			p.SrcMAC, p.DstMAC, p.Src, p.Dst, p.SrcPort, p.DstPort = p.DstMAC, p.SrcMAC, p.Dst, p.Src, p.DstPort, p.SrcPort
		}
		p.TCPFlags = flags
		out = append(out, conformance.Frame(p))
	}
	return out
}

// pass sends frames and returns how many went on.
func (c *crowded) pass(from *desired.Port, frames [][]byte) (n int) {
	for _, ret := range c.from(c.t, from.IfName, frames...) {
		if ret == redirected {
			n++
		}
	}
	return n
}

func (c *crowded) all(what string, from *desired.Port, frames [][]byte) {
	c.t.Helper()
	if n := c.pass(from, frames); n != len(frames) {
		c.t.Errorf("%s: %d of %d packets pass", what, n, len(frames))
	}
}

// connect opens connections to b.
func (c *crowded) connect(what string, of *desired.Port, first uint16, n int) {
	c.t.Helper()
	for i := range n { // one after the other, or those of a flood would evict themselves
		at := first + uint16(i)
		c.all(what+": request", of, c.segments(of, at, 1, reference.FlagSYN, false))
		c.all(what+": answer", c.b, c.segments(of, at, 1, reference.FlagSYN|reference.FlagACK, true))
		c.all(what+": acknowledgement", of, c.segments(of, at, 1, reference.FlagACK, false))
	}
}

// conns are the connections that are known.
func (c *crowded) conns() map[connKey]conn {
	c.t.Helper()
	out := map[connKey]conn{}
	note := func(k connKey, v conn) { out[k] = v }
	if err := errors.Join(eachEntry("conns", c.drv.dp.obj.Conns, 1, note), eachEntry("halfopen", c.drv.dp.obj.Halfopen, 1, note)); err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *crowded) tables() map[string]driver.TableStats {
	c.t.Helper()
	now, err := monotonic()
	if err == nil {
		err = c.drv.countTables(now)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return c.drv.Tables()
}

// TestFloodTakesItsOwnShare: a flood of half-open connections evicts the flooder's own, and
// no other endpoint's, half-open or idle and open.
func TestFloodTakesItsOwnShare(t *testing.T) {
	const room = 1024
	c := newCrowded(t, map[string]uint32{"conns": room, "halfopen": room})
	c.connect("idle", c.c, 10000, 20)
	waiting := c.segments(c.c, 20000, 300, reference.FlagSYN, false)
	c.all("waiting for an answer", c.c, waiting)
	flood := c.segments(c.a, 1000, 30000, reference.FlagSYN, false)
	for i := range 10 {
		part := flood[i*3000:][:3000]
		c.all("flood", c.a, part[:1500])
		c.connect("meanwhile", c.c, uint16(30000+100*i), 10)
		c.all("flood", c.a, part[1500:])
	}
	c.all("answers to who waited", c.b, c.segments(c.c, 20000, 300, reference.FlagSYN|reference.FlagACK, true))
	c.all("the other end of idle connections speaks", c.b, c.segments(c.c, 10000, 20, reference.FlagACK|reference.FlagPSH, true))
	if n := c.pass(c.b, c.segments(c.a, 1000, 3000, reference.FlagSYN|reference.FlagACK, true)); n != 0 {
		t.Errorf("%d answers to the flood's first packets pass, which were the oldest", n)
	}
	if n := c.pass(c.b, c.segments(c.a, 30500, 500, reference.FlagSYN|reference.FlagACK, true)); n < 400 {
		t.Errorf("%d of 500 answers to the flood's last packets pass", n)
	}
	got := c.tables()
	if h := got["halfopen"]; h.Entries > room || h.Entries < room*3/4 || h.Evicted < 30000-room {
		t.Errorf("halfopen: %+v; want up to %d entries, and the rest evicted", h, room)
	}
	if o := got["conns"]; o.Entries != 120 || o.Evicted != 0 {
		t.Errorf("conns: %+v; want the 120 that were opened", o)
	}
}

// TestShareBitesOnlyWhenShort: while there is room, one endpoint may have nearly
// all of it, wherever in the ring its connections are.
func TestShareBitesOnlyWhenShort(t *testing.T) {
	const room = 1024
	c := newCrowded(t, map[string]uint32{"conns": room, "halfopen": room})
	c.all("a's", c.a, c.segments(c.a, 1000, 700, reference.FlagSYN, false))
	for i := range 40 { // round and round
		c.connect("c's", c.c, uint16(10000+i*50), 20)
	}
	c.all("answers to a", c.b, c.segments(c.a, 1000, 700, reference.FlagSYN|reference.FlagACK, true))
	if got := c.tables(); got["halfopen"].Evicted != 0 || got["halfopen"].Entries != 700 || got["conns"].Entries != 800 || got["conns"].Evicted != 0 {
		t.Errorf("%+v; want 700 half-open, 800 open, and none evicted", got)
	}
}

// TestOpenConnectionsAreShared: connections that a flooder's helper answers fill
// no more than there is room for, others' idle ones stay, and others go on
// opening new ones; the driver takes away the flooder's longest idle.
func TestOpenConnectionsAreShared(t *testing.T) {
	const room = 8192 // of fewer the kernel keeps too many back for its processors
	c := newCrowded(t, map[string]uint32{"conns": room, "halfopen": 1024})
	c.connect("idle", c.c, 10000, 20)
	c.connect("flood", c.a, 20000, 10000)
	c.connect("meanwhile", c.c, 30000, 20)
	got := c.tables()
	if o := got["conns"]; o.Entries > uint64(nearlyFullAt(room))+20 || o.Evicted == 0 {
		t.Errorf("conns: %+v; want at most %d entries, and evictions", o, nearlyFullAt(room))
	}
	c.all("the other end of idle connections speaks", c.b, c.segments(c.c, 10000, 20, reference.FlagACK, true))
	c.all("the other end of new connections speaks", c.b, c.segments(c.c, 30000, 20, reference.FlagACK, true))
	c.all("the other end of the flood's last", c.b, c.segments(c.a, 29900, 100, reference.FlagACK, true))
	// Removed connections have no owner any more.
	if err := c.drv.dp.conns.sweep(func(connKey, conn) bool { return true }); err != nil {
		t.Fatal(err)
	}
	left, taken := 0, 0
	for i := range uint32(ownerCount) {
		var spent, given ownerShare
		if c.drv.dp.obj.Spent.Lookup(i, &spent) == nil && c.drv.dp.obj.Given.Lookup(i, &given) == nil && spent != given {
			left++
		}
	}
	_ = eachEntry("slots", c.drv.dp.obj.Slots, 1, func(_ uint32, s slot) {
		if s.Owner != 0 {
			taken++
		}
	})
	if left+taken != 0 {
		t.Errorf("%d owners and %d places are taken when nothing is left", left, taken)
	}
}

// TestConnectionsOpenWithoutTheDriver: without a driver new connections of anybody go on opening,
// however many there have been, in place of the longest idle.
func TestConnectionsOpenWithoutTheDriver(t *testing.T) {
	const room = 1024
	c := newCrowded(t, map[string]uint32{"conns": room, "halfopen": room})
	for i := range 60 {
		if err := c.drv.dp.obj.Swept.Put(uint32(0), uint64(0)); err != nil { // and the driver, which is there, may say otherwise soon
			t.Fatal(err)
		}
		c.connect("busy", c.a, uint16(10000+50*i), 50)
	}
	c.connect("another", c.c, 30000, 20)
	c.all("the other end of the last", c.b, c.segments(c.a, 12900, 100, reference.FlagACK, true))
	c.all("the other end of another's", c.b, c.segments(c.c, 30000, 20, reference.FlagACK, true))
	if got := c.tables()["conns"]; got.Evicted == 0 || got.Entries < room/2 {
		t.Errorf("conns: %+v; want it well used, and evictions", got)
	}
}

// TestLargestHolderIsEvictedFirst: who has more than others gives way, longest idle first.
func TestLargestHolderIsEvictedFirst(t *testing.T) {
	make := func(sizes ...int) (out []owned) {
		for who, n := range sizes {
			for i := range n {
				out = append(out, owned{connKey{LoPort: uint16(i), HiPort: uint16(who)}, uint16(who), uint64(i)})
			}
		}
		return out
	}
	for _, x := range []struct {
		sizes, want []int
		room        int
	}{
		{[]int{10, 10}, []int{0, 0}, 20},
		{[]int{100, 10}, []int{20, 0}, 90},
		{[]int{100, 100, 10}, []int{10, 10, 0}, 190},
		{[]int{100, 50, 10}, []int{70, 20, 0}, 70},
		{[]int{3, 3, 3}, []int{2, 2, 2}, 5},
	} {
		got := make(x.sizes...)
		out := connectionsToEvict(slices.Clone(got), x.room)
		gone := []int{0, 0, 0}[:len(x.sizes)]
		for _, o := range out {
			gone[o.owner]++
			if int(o.seen) >= x.want[o.owner] {
				t.Errorf("%v into %d: one that was idle %d goes", x.sizes, x.room, o.seen)
			}
		}
		if !slices.Equal(gone, x.want) {
			t.Errorf("%v into %d: %v go, want %v", x.sizes, x.room, gone, x.want)
		}
	}
}
