package ebpf

import (
	"testing"
)

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
		"without its first":    {{480, 960, false}, {0, 480, true}, {480, 960, true}},
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
	if err := eachEntry("frags", j.rig.drv.obj.Frags, 1, func(k fragKey, v frag) { key, value = k, v }); err != nil {
		t.Fatal(err)
	}
	value.Parts = 63
	if err := j.rig.drv.obj.Frags.Put(key, value); err != nil {
		t.Fatal(err)
	}
	if a, b := send(1), send(2); !a || b {
		t.Errorf("part 64 passes: %v, want true; part 65: %v, want false", a, b)
	}
}
