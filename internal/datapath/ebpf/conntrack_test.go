package ebpf

import (
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
)

// TestProgramsAndDriverAgreeOnTimeouts: how long a connection lives without packets, by what went
// over it; the programs and the driver agree.
func TestProgramsAndDriverAgreeOnTimeouts(t *testing.T) {
	c := newCrowded(t, nil)
	const syn, ack, fin, rst = reference.FlagSYN, reference.FlagACK, reference.FlagFIN, reference.FlagRST
	there := func(flags uint8) int { return int(flags) }
	back := func(flags uint8) int { return int(flags) | 0x100 }
	opened := []int{there(syn), back(syn | ack), there(ack)}
	for i, x := range []struct {
		name string
		sent []int
		life time.Duration
	}{
		{"asked", opened[:1], 120 * time.Second},
		{"answered", opened[:2], 120 * time.Second},
		{"open", opened, 8 * time.Hour},
		{"half closed by who began", append(opened[:3:3], there(fin|ack), back(ack)), 120 * time.Second},
		{"half closed by the other", append(opened[:3:3], back(fin|ack), there(ack), there(ack)), 120 * time.Second},
		{"closed", append(opened[:3:3], there(fin|ack), back(fin|ack), there(ack)), 30 * time.Second},
		{"reset", append(opened[:3:3], back(rst|ack)), 30 * time.Second},
		{"asked again after a half end", append(opened[:3:3], there(fin|ack), there(syn), back(syn|ack), there(ack)), 8 * time.Hour},
		{"asked again after the end", append(opened[:3:3], there(fin|ack), back(fin|ack), there(syn), back(syn|ack), there(ack)), 8 * time.Hour},
	} {
		port := uint16(10000 + 10*i)
		for _, s := range x.sent {
			from := c.c
			if s&0x100 != 0 {
				from = c.b
			}
			c.all(x.name, from, c.segments(c.c, port, 1, uint8(s), s&0x100 != 0))
		}
		// age makes it so old, and tells whether an answer passes and the driver keeps it.
		age := func(by time.Duration) (passes, kept bool) {
			now, err := monotonic()
			if err != nil {
				t.Fatal(err)
			}
			var found []connKey
			var value conn
			look := func(k connKey, v conn) {
				if k.LoPort == port || k.HiPort == port {
					found, value = append(found, k), v
				}
			}
			m := c.drv.dp.obj.Conns
			_ = eachEntry("conns", m, 1, look)
			if len(found) == 0 {
				m = c.drv.dp.obj.Halfopen
				_ = eachEntry("halfopen", m, 1, look)
			}
			if len(found) != 1 {
				t.Fatalf("%s: %d connections", x.name, len(found))
			}
			if open := x.life == 8*time.Hour; open != (value.State&(connOpen|connReset|connFin|connFinReply) == connOpen) {
				t.Errorf("%s: its state is %#x", x.name, value.State)
			}
			if value.Seen = now - uint64(by); now < uint64(by) {
				t.Logf("%s: the machine is not as old as %v", x.name, by)
				return by < x.life, by < x.life
			}
			if err := m.Put(found[0], value); err != nil {
				t.Fatal(err)
			}
			kept = !expired(found[0], value, now)
			c.forgetShortWays(t)
			return c.pass(c.b, c.segments(c.c, port, 1, ack, true)) == 1, kept
		}
		if passes, kept := age(x.life + 2*time.Second); passes || kept {
			t.Errorf("%s: after %v it passes: %v, is kept: %v", x.name, x.life, passes, kept)
		}
		if passes, kept := age(x.life - 2*time.Second); !passes || !kept {
			t.Errorf("%s: before %v it passes: %v, is kept: %v", x.name, x.life, passes, kept)
		}
	}
}

// forgetShortWays makes packets take the slow path.
func (r *rig) forgetShortWays(t testing.TB) {
	t.Helper()
	for m := range placesOf(r.drv.dp.obj) {
		for i := range takenPlaces(t, m) {
			if err := m.Put(i, make([]byte, m.ValueSize())); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestConnectionsOfTheGoneAreForgotten: who gets the address of an endpoint that
// went inherits none of its connections, open or half open, and others keep theirs.
func TestConnectionsOfTheGoneAreForgotten(t *testing.T) {
	c := newCrowded(t, nil)
	c.connect("open", c.c, 10000, 3)
	c.all("half open", c.c, c.segments(c.c, 11000, 3, reference.FlagSYN, false))
	c.connect("of another", c.a, 10000, 3)
	pic := c.pic
	pic.Revision++
	pic.Ports = pic.Ports.Delete(c.c.IfName)
	heir := *c.c
	heir.IfName, heir.MAC = "cvnd", model.MAC{2, 5, 0, 0, 0, 10}
	c.addWire(t, heir.IfName, heir.MAC)
	for range 2 { // without anybody, then with the heir
		if rep, err := (inHost{c.drv, c.rig}).Apply(t.Context(), pic); err != nil || conformance.Failed(rep) != nil {
			t.Fatal(err, conformance.Failed(rep))
		}
		pic.Revision++
		pic.Ports = pic.Ports.Set(heir.IfName, &heir)
	}
	for _, first := range []uint16{10000, 11000} {
		if n := c.pass(c.b, c.segments(&heir, first, 3, reference.FlagACK, true)); n != 0 {
			t.Errorf("%d segments of the former owner's connections from port %d on reach the heir, who lets nobody in", n, first)
		}
	}
	c.all("answers to another", c.b, c.segments(c.a, 10000, 3, reference.FlagACK, true))
}
