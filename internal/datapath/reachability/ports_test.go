package reachability

import (
	"math/rand/v2"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
)

// edges are pairs at and beside every bound that randomMatch has.
var edges = func() (out []model.PortMatch) {
	for _, proto := range []model.Protocol{0, 1, 2, 6, 17, 47, 58, 132, 255} {
		for _, port := range []uint16{0, 1, 9, 10, 11, 19, 20, 21, 65534, 65535} {
			out = append(out, model.PortMatch{Protocol: proto, Lo: port})
		}
	}
	return out
}()

func pick[T any](d *rand.Rand, of ...T) T { return of[d.IntN(len(of))] }

func randomMatch(d *rand.Rand) model.PortMatch {
	m := model.PortMatch{Protocol: pick(d, model.AnyProtocol, 0, 1, 6, 6, 17, 47, 58, 132, 255), Hi: 65535}
	if m.Protocol.HasPorts() && d.IntN(3) > 0 {
		m.Lo, m.Hi = pick[uint16](d, 0, 1, 10, 20), pick[uint16](d, 1, 10, 20, 65535)
		m.Lo = min(m.Lo, m.Hi)
	}
	return m
}

func randomPorts(d *rand.Rand) (Ports, []model.PortMatch) {
	var matches []model.PortMatch
	for range 1 + d.IntN(4) {
		matches = append(matches, randomMatch(d))
	}
	return PortsOf(matches...), matches
}

func matched(all []model.PortMatch, at model.PortMatch) bool {
	for _, m := range all {
		if m.Matches(at.Protocol, at.Lo) {
			return true
		}
	}
	return false
}

func TestPortsAreTheSetsOfTheirMatches(t *testing.T) {
	for seed := range uint64(20000) {
		d := rand.New(rand.NewPCG(seed, 1))
		a, inA := randomPorts(d)
		b, inB := randomPorts(d)
		or, and, without, again := a.Or(b), a.And(b), a.Without(b), PortsOf(a.Matches()...)
		if a.IsEmpty() || !and.Or(without).Equal(a) || !or.Equal(b.Or(a)) {
			t.Fatalf("seed %d: %v and %v: %v, %v, %v", seed, inA, inB, or, and, without)
		}
		for _, e := range edges {
			x, y := matched(inA, e), matched(inB, e)
			got := []bool{a.Has(e.Protocol, e.Lo), or.Has(e.Protocol, e.Lo), and.Has(e.Protocol, e.Lo), without.Has(e.Protocol, e.Lo)}
			for i, want := range []bool{x, x || y, x && y, x && !y} {
				if got[i] != want {
					t.Fatalf("seed %d: %v and %v at %v: %v", seed, inA, inB, e, got)
				}
			}
			if e.Protocol != model.ProtoICMPv6 && again.Has(e.Protocol, e.Lo) != x { // a match of ICMP is of ICMPv6 too
				t.Fatalf("seed %d: %v became %v", seed, inA, a.Matches())
			}
		}
	}
}

func TestNoPortsAndNamedPortsAreEmpty(t *testing.T) {
	if !(Ports{}).IsEmpty() || !PortsOf(model.PortMatch{Protocol: model.ProtoTCP, Name: "http"}).IsEmpty() || AllPorts().Has(256, 1) {
		t.Error("something is in an empty set")
	}
	if !PortsOf().Equal(AllPorts()) {
		t.Error("a rule without ports is not for all of them")
	}
}
