package ebpf

import (
	"math/rand/v2"
	"testing"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
)

// backends are n members whose places are not in the order of their numbers.
func backends(rng *rand.Rand, n int) []member {
	out := make([]member, n)
	for i := range out {
		out[i] = member{desired.Mix(rng.Uint64()), uint32(3*i + 1)}
	}
	return out
}

// places are whose each place is.
func places(members []member) map[uint16]uint64 {
	out := map[uint16]uint64{}
	for _, m := range members {
		out[uint16(m.index)] = m.id
	}
	return out
}

// TestSlotTableEqualsOneComputedFromNothing: a table that follows a change equals one that is computed from nothing,
// whichever backends came, went, or took another's place.
func TestSlotTableEqualsOneComputedFromNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	before := backends(rng, 40)
	gone := append(append([]member{}, before[:10]...), before[12:]...)
	placed := append([]member{}, before...)
	placed[7].id = desired.Mix(rng.Uint64())
	for name, after := range map[string][]member{
		"the same": before, "two gone": gone, "three come": append(append([]member{}, before...), member{1, 500}, member{2, 501}, member{3, 502}),
		"one gone, its place another's": placed, "gone and come": append(append([]member{}, gone...), member{1, 500}),
		"all others": backends(rng, 40), "one": before[3:4],
	} {
		want := ownersOf(nil, nil, after)
		known := places(before)
		got := ownersOf(ownersOf(nil, nil, before), known, after)
		differ := 0
		for i := range want {
			if got[i] != want[i] {
				differ++
			}
		}
		if differ > 0 {
			t.Errorf("%s: %d of %d rows differ", name, differ, len(want))
		}
	}
}

// BenchmarkOwners is what one backend costs each service that it comes to, of 100.
func BenchmarkOwners(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	before := backends(rng, 100)
	table, known := ownersOf(nil, nil, before), places(before)
	after := append(append([]member{}, before...), member{1, 500})
	for b.Loop() {
		ownersOf(table, known, after)
	}
}
