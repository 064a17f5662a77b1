package ebpf

import (
	"bytes"
	"slices"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// TestFragmentsWaitForTheFirst sends as many fragments as a datagram may have, the last
// one first: all come out, behind the first one, and none is counted as dropped. More of
// them than there is room for, of datagrams whose first fragment never comes, take only
// the place of others like them.
func TestFragmentsWaitForTheFirst(t *testing.T) {
	j := newJudged(t)
	whole := append(udp(4000, 5353), make([]byte, 63*24-8)...)
	for i := range 63 {
		whole[24*i+23] = byte(i)
	}
	part := func(id byte, i int) []byte {
		at := uint16(3 * i)
		if i < 62 {
			at |= 0x2000
		}
		h := header4(j.a.IPv4.As4(), j.b.IPv4.As4(), 17, at, nil, whole[24*i:24*i+24])
		h[5] = id
		return ether(j.b.MAC, j.a.MAC, 0x0800, summed(h))
	}
	var frames [][]byte
	for id := range byte(5) { // without their first
		for i := 62; i > 0; i-- {
			frames = append(frames, part(id+2, i))
		}
	}
	for i := 62; i >= 0; i-- {
		frames = append(frames, part(1, i))
	}
	before := j.drops(t)
	from := slices.Repeat([]reference.Packet{{Port: j.a.IfName}}, len(frames))
	came := j.frames(t, from, frames, func(came map[string][][]byte) bool { return len(came[j.b.IfName]) >= 63 })[j.b.IfName]
	if len(came) != 63 || !bytes.Equal(came[0], part(1, 0)) {
		t.Errorf("%d fragments came out, want 63, the first one before the others", len(came))
	}
	if dropped := j.drops(t) - before; dropped != 0 {
		t.Errorf("%d packets were dropped", dropped)
	}
}

// TestFragmentsDoNotOverlap: of what a datagram's fragments say twice, the second
// is dropped and counted, whichever of them it is in; so what policy saw is what
// is put together.
func TestFragmentsDoNotOverlap(t *testing.T) {
	j := newJudged(t)
	am, bm := j.a.MAC, j.b.MAC
	whole := append(tcp(4000, 80, 2), make([]byte, 2000)...)
	type part struct {
		from, to int
		passes   bool
	}
	for name, parts := range map[string][]part{
		"in order":             {{0, 480, true}, {480, 960, true}, {960, 1440, true}, {1440, 2000, true}},
		"out of order":         {{0, 480, true}, {960, 1440, true}, {480, 960, true}, {1440, 2000, true}},
		"over the first":       {{0, 480, true}, {16, 480, false}, {472, 960, false}, {480, 2000, true}},
		"over a later one":     {{0, 480, true}, {480, 960, true}, {952, 2000, false}, {960, 2000, true}},
		"all over":             {{0, 480, true}, {960, 1440, true}, {480, 2000, false}},
		"the same twice":       {{0, 480, true}, {480, 960, true}, {480, 960, false}, {960, 2000, true}},
		"the first anew":       {{0, 480, true}, {480, 960, true}, {0, 480, true}, {480, 960, true}},
		"into the middle":      {{0, 480, true}, {480, 1440, true}, {720, 960, false}},
		"before it and across": {{0, 24, true}, {8, 480, false}, {24, 480, true}},
	} {
		for _, v6 := range []bool{false, true} {
			j.forget(t)
			for i, p := range parts {
				data, more := whole[p.from:p.to], p.to < 2000
				var f []byte
				if v6 {
					f = ether(bm, am, 0x86dd, header6(j.a.IPv6.As16(), j.b.IPv6.As16(), 44, fragment6(6, uint16(p.from), more), data))
				} else {
					at := uint16(p.from / 8)
					if more {
						at |= 0x2000
					}
					f = ether(bm, am, 0x0800, header4(j.a.IPv4.As4(), j.b.IPv4.As4(), 6, at, nil, data))
				}
				if got := j.send(t, f); got != p.passes {
					t.Errorf("%s, IPv6 %v: part %d, %d to %d: passes: %v, want %v", name, v6, i, p.from, p.to, got, p.passes)
				}
			}
		}
	}
	// More parts than are noted do not pass: after 63, one more does.
	j.forget(t)
	send := func(i int) bool {
		t.Helper()
		at := uint16(i*3) | 0x2000
		return j.send(t, ether(bm, am, 0x0800, header4(j.a.IPv4.As4(), j.b.IPv4.As4(), 6, at, nil, whole[i*24:i*24+24])))
	}
	if !send(0) {
		t.Fatal("the first part does not pass")
	}
	var key fragKey
	var value frag
	if err := eachEntry("frags", j.rig.drv.dp.obj.Frags, 1, func(k fragKey, v frag) { key, value = k, v }); err != nil {
		t.Fatal(err)
	}
	value.Parts = 63
	if err := j.rig.drv.dp.obj.Frags.Put(key, value); err != nil {
		t.Fatal(err)
	}
	if a, b := send(1), send(2); !a || b {
		t.Errorf("part 64 passes: %v, want true; part 65: %v, want false", a, b)
	}
}
