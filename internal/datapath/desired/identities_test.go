package desired

import (
	"maps"
	"math/rand"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestIdentitiesBehaveAsAGoMap runs random edits on a set and a Go map side by side,
// and checks contents, order, old versions, Diff and Equal.
func TestIdentitiesBehaveAsAGoMap(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	numbers := []model.Identity{0, 1, 63, 64, 1023, 1024, 32767, 32768, model.IdentityLast - 1, model.IdentityLast}
	for range 200 {
		numbers = append(numbers, model.Identity(rng.Intn(1<<20)))
	}
	var s Identities
	ref := map[model.Identity]bool{}
	for range 300 {
		old, oldRef := s, maps.Clone(ref)
		for range rng.Intn(20) {
			id := numbers[rng.Intn(len(numbers))]
			if rng.Intn(2) == 0 {
				s = s.Without(id)
				delete(ref, id)
			} else {
				s = s.With(id)
				ref[id] = true
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(ref)), slices.Collect(s.All())); diff != "" {
			t.Fatalf("contents (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(oldRef)), slices.Collect(old.All())); diff != "" {
			t.Fatalf("an old version changed (-want +got):\n%s", diff)
		}
		if s.Len() != len(ref) {
			t.Fatalf("Len() = %d, want %d", s.Len(), len(ref))
		}
		patched, last := maps.Clone(oldRef), -1
		for id, has := range s.Diff(old) {
			if int(id) <= last || oldRef[id] == has {
				t.Fatalf("Diff yields %d %v after %d", id, has, last)
			}
			if last = int(id); has {
				patched[id] = true
			} else {
				delete(patched, id)
			}
		}
		if diff := cmp.Diff(ref, patched); diff != "" {
			t.Fatalf("old + Diff (-want +got):\n%s", diff)
		}
		if got, want := s.Equal(old), maps.Equal(ref, oldRef); got != want {
			t.Fatalf("Equal = %v, want %v", got, want)
		}
		for _, id := range numbers {
			if s.Has(id) != ref[id] {
				t.Fatalf("Has(%d) = %v", id, s.Has(id))
			}
		}
	}
	if s := IdentitiesOf(model.IdentityLast + 1); s.Len() != 0 || s.Has(model.IdentityLast+1) {
		t.Error("a number that no data plane knows is in a set")
	}
}

// BenchmarkIdentities changes one of n.
func BenchmarkIdentities(b *testing.B) {
	for _, n := range []int{100, 10000} {
		var s Identities
		for i := range n {
			s = s.With(model.IdentityFirst + model.Identity(i))
		}
		b.Run(itoa(n), func(b *testing.B) {
			for i := range b.N {
				id := model.IdentityFirst + model.Identity(i%n)
				next := s.Without(id)
				for range next.Diff(s) {
				}
			}
		})
	}
}
