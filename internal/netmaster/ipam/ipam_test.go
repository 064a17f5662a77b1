package ipam

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func rng(first, last string) model.AddrRange {
	return model.AddrRange{First: addr(first), Last: addr(last)}
}

// Bits agrees with a plain map under random operations.
func TestBitsAgreeWithAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, span := range []uint64{70, 5000, 1 << 20, MaxBit} {
		var b Bits
		want := map[uint64]bool{}
		for range 20000 {
			i := r.Uint64N(span)
			switch r.IntN(4) {
			case 0, 1:
				if b.Add(i) == want[i] {
					t.Fatalf("Add(%d) with %v", i, want[i])
				}
				want[i] = true
			case 2:
				if b.Remove(i) != want[i] {
					t.Fatalf("Remove(%d) with %v", i, want[i])
				}
				delete(want, i)
			case 3:
				if b.Has(i) != want[i] {
					t.Fatalf("Has(%d) with %v", i, want[i])
				}
			}
			if b.Len() != uint64(len(want)) {
				t.Fatalf("Len %d, want %d", b.Len(), len(want))
			}
			to := min(i+r.Uint64N(200), span)
			got, ok := b.NextFree(i, to)
			used, okUsed := b.NextUsed(i, to)
			wf, wu := scan(want, i, to)
			if free := wf; ok != (free <= to) || ok && got != free {
				t.Fatalf("NextFree(%d,%d) = %d,%v, want %d", i, to, got, ok, free)
			}
			if okUsed != (wu <= to) || okUsed && used != wu {
				t.Fatalf("NextUsed(%d,%d) = %d,%v, want %d", i, to, used, okUsed, wu)
			}
		}
	}
}

func scan(m map[uint64]bool, from, to uint64) (free, used uint64) {
	free, used = to+1, to+1
	for j := from; j <= to; j++ {
		if m[j] && used > to {
			used = j
		}
		if !m[j] && free > to {
			free = j
		}
	}
	return free, used
}

// Everything allowed is handed out exactly once, then nothing, for subnets and
// exclusions of both families.
func TestSpaceHandsOutAll(t *testing.T) {
	for _, tc := range []struct {
		prefix  string
		exclude Ranges
		want    int
	}{
		{"10.1.1.0/24", One(addr("10.1.1.254")), 253},
		{"10.1.1.0/24", Union(rng("10.1.1.10", "10.1.1.20"), rng("10.1.1.1", "10.1.1.1")), 242},
		{"10.1.0.0/20", nil, 4094},
		{"10.8.1.0/29", One(addr("10.8.1.1")), 5},
		{"10.1.1.0/31", nil, 2},
		{"10.1.1.1/32", nil, 1},
		{"2001:db8::/120", One(addr("2001:db8::1")), 254},
		{"2001:db8::ffff:ffff:ffff:fff0/124", nil, 15},
	} {
		t.Run(tc.prefix, func(t *testing.T) {
			p := netip.MustParsePrefix(tc.prefix)
			allowed := Ranges{model.HostRange(p)}.Minus(tc.exclude)
			s := NewSpace(p)
			for i := range tc.want {
				a, ok := s.Next("", allowed)
				if !ok || !allowed.Contains(a) || tc.exclude.Contains(a) || !s.Add(a) {
					t.Fatalf("address %d: %v %v", i, a, ok)
				}
			}
			if a, ok := s.Next("", allowed); ok {
				t.Errorf("%v handed out from a full space", a)
			}
			if s.Len() != tc.want {
				t.Errorf("Len %d, want %d", s.Len(), tc.want)
			}
			if left := allowed.Minus(s.Used(model.HostRange(p))); len(left) != 0 {
				t.Errorf("left over: %s", left)
			}
		})
	}
}

// A freed address is the last to be handed out again.
func TestFreedAddressIsTheLastToBeReused(t *testing.T) {
	s := NewSpace(netip.MustParsePrefix("10.8.1.0/29"))
	allowed := Ranges{rng("10.8.1.1", "10.8.1.6")}
	var got []string
	for range 6 {
		a, ok := s.Next("", allowed)
		if !ok {
			t.Fatal("space is full")
		}
		got = append(got, a.String())
		s.Add(a)
		if len(got) == 2 {
			s.Remove(addr("10.8.1.1"))
		}
	}
	want := []string{"10.8.1.1", "10.8.1.2", "10.8.1.3", "10.8.1.4", "10.8.1.5", "10.8.1.6"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a, _ := s.Next("", allowed); a != addr("10.8.1.1") {
		t.Errorf("after the end came %v, want the freed one", a)
	}
	s.SetCursor("pool", addr("10.8.1.3"))
	s.Remove(addr("10.8.1.2"))
	s.Remove(addr("10.8.1.5"))
	if a, _ := s.Next("pool", allowed); a != addr("10.8.1.5") {
		t.Errorf("after .3 was seen came %v, want .5", a)
	}
	var n Numbers
	n.Add(100)
	n.Add(101)
	for _, want := range []uint32{102, 103, 102} {
		got, ok := n.Next(100, 103)
		if !ok || got != want {
			t.Errorf("got %d %v, want %d", got, ok, want)
		}
	}
}

// A /64 works, an address far into it too, and a space wider than 2^36 searches its front.
func TestWideIPv6SpacesAreSearched(t *testing.T) {
	p := netip.MustParsePrefix("2001:db8::/64")
	s := NewSpace(p)
	far := addr("2001:db8::ffff:0:0:1")
	if !s.Add(far) || s.Add(far) || !s.Has(far) {
		t.Error("far address is not kept")
	}
	allowed := Ranges{model.HostRange(p)}.Minus(One(addr("2001:db8::1")))
	a, ok := s.Next("", allowed)
	if !ok || a != addr("2001:db8::2") {
		t.Errorf("got %v %v", a, ok)
	}
	s.Add(a)
	if diff := cmp.Diff("2001:db8::2, 2001:db8::ffff:0:0:1", s.Used(model.HostRange(p)).String()); diff != "" {
		t.Error(diff)
	}
	if !s.Remove(far) || s.Remove(far) || s.Len() != 1 {
		t.Error("far address is not released")
	}
}

// The texts of ranges are those of 1.x.
func TestRangesAreWrittenAsIn1x(t *testing.T) {
	s := NewSpace(netip.MustParsePrefix("10.1.1.0/24"))
	for _, a := range []string{"10.1.1.1", "10.1.1.2", "10.1.1.3", "10.1.1.9"} {
		s.Add(addr(a))
	}
	window := model.HostRange(s.Prefix())
	used := s.Used(window)
	if diff := cmp.Diff("10.1.1.1-10.1.1.3, 10.1.1.9", used.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("10.1.1.4-10.1.1.8, 10.1.1.10-10.1.1.254", Ranges{window}.Minus(used).String()); diff != "" {
		t.Error(diff)
	}
	var n Numbers
	for _, v := range []uint32{1, 2, 3, 4, 6, 7, 5000} {
		n.Add(v)
	}
	if diff := cmp.Diff("1-4, 6-7, 5000", n.String()); diff != "" {
		t.Error(diff)
	}
	if v, ok := n.Outside(1, 10); !ok || v != 5000 {
		t.Errorf("Outside = %d, %v", v, ok)
	}
	if v, ok := n.Outside(2, 5000); !ok || v != 1 {
		t.Errorf("Outside = %d, %v", v, ok)
	}
	if v, ok := n.Outside(0, 5000); ok {
		t.Errorf("Outside = %d, want none", v)
	}
}

// Minus and Union agree with a plain set of addresses.
func TestRangesAgreeWithASet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	base := NewSpace(netip.MustParsePrefix("10.0.0.0/24"))
	random := func() Ranges {
		var rs []model.AddrRange
		for range r.IntN(6) {
			lo := r.Uint64N(256)
			rs = append(rs, model.AddrRange{First: base.at(lo), Last: base.at(min(255, lo+r.Uint64N(40)))})
		}
		return Union(rs...)
	}
	for range 5000 {
		a, b := random(), random()
		diff, sum := a.Minus(b), Union(append(append([]model.AddrRange{}, a...), b...)...)
		for i := range uint64(256) {
			x := base.at(i)
			if got, want := diff.Contains(x), a.Contains(x) && !b.Contains(x); got != want {
				t.Fatalf("%s minus %s = %s is wrong at %s", a, b, diff, x)
			}
			if got, want := sum.Contains(x), a.Contains(x) || b.Contains(x); got != want {
				t.Fatalf("%s and %s = %s is wrong at %s", a, b, sum, x)
			}
		}
	}
}

// BenchmarkNextFull frees and finds one address in a /16 that is otherwise full.
func BenchmarkNextFull(b *testing.B) {
	p := netip.MustParsePrefix("10.1.0.0/16")
	allowed := Ranges{model.HostRange(p)}
	s := NewSpace(p)
	for range 65534 {
		a, _ := s.Next("", allowed)
		s.Add(a)
	}
	r := rand.New(rand.NewPCG(5, 6))
	b.ResetTimer()
	for b.Loop() {
		s.Remove(s.at(1 + r.Uint64N(65534)))
		a, ok := s.Next("", allowed)
		if !ok || !s.Add(a) {
			b.Fatal("nothing found")
		}
	}
}
