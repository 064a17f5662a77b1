package desired

import (
	"maps"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMapBehavesAsAGoMap runs random edits on a Map and a Go map side by side, and
// checks contents, sharing of old versions, and Diff.
func TestMapBehavesAsAGoMap(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	var m Map[int, int]
	ref := map[int]int{}
	for range 200 {
		old, oldRef := m, maps.Clone(ref)
		for range rng.Intn(50) {
			k, v := rng.Intn(500), rng.Intn(3)
			if rng.Intn(3) == 0 {
				m = m.Delete(k)
				delete(ref, k)
			} else {
				m = m.Set(k, v)
				ref[k] = v
			}
		}
		if diff := cmp.Diff(ref, maps.Collect(m.All())); diff != "" {
			t.Fatalf("contents (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(oldRef, maps.Collect(old.All())); diff != "" {
			t.Fatalf("an old version changed (-want +got):\n%s", diff)
		}
		if m.Len() != len(ref) {
			t.Fatalf("Len() = %d, want %d", m.Len(), len(ref))
		}
		patched := maps.Clone(oldRef)
		for c := range m.Diff(old) {
			if _, had := oldRef[c.Key]; had != c.Had {
				t.Fatalf("change %+v: Had is wrong", c)
			}
			if c.Has {
				patched[c.Key] = c.New
			} else {
				delete(patched, c.Key)
			}
		}
		if diff := cmp.Diff(ref, patched); diff != "" {
			t.Fatalf("old + Diff (-want +got):\n%s", diff)
		}
	}
}

// TestSettingAnEqualValueChangesNothing checks that writing what is there changes nothing.
func TestSettingAnEqualValueChangesNothing(t *testing.T) {
	m := Map[string, int]{}.Set("a", 1)
	if n := m.Set("a", 1); n.root != m.root {
		t.Error("Set of an equal value made a new version")
	}
	if n := m.Delete("b"); n.root != m.root {
		t.Error("Delete of an absent key made a new version")
	}
}

func BenchmarkMapSetDiff(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		var m Map[int, int]
		for i := range n {
			m = m.Set(i, 0)
		}
		b.Run(itoa(n), func(b *testing.B) {
			for i := range b.N {
				next := m.Set(i%n, i+1)
				for range next.Diff(m) {
				}
			}
		})
	}
}

func itoa(n int) string {
	switch n {
	case 10:
		return "10"
	case 1000:
		return "1000"
	}
	return "100000"
}

// TestMapKeepsKeysWithEqualHashes has so many keys that parts hold several at one place of the hash.
func TestMapKeepsKeysWithEqualHashes(t *testing.T) {
	const n = 100_000
	var m Map[int, int]
	for k := range n {
		m = m.Set(k, k)
	}
	all := m
	for k := 0; k < n; k += 2 {
		m = m.Delete(k)
	}
	if all.Len() != n || m.Len() != n/2 {
		t.Fatalf("Len() = %d and %d, want %d and %d", all.Len(), m.Len(), n, n/2)
	}
	for k := range n {
		if v, ok := all.Get(k); !ok || v != k {
			t.Fatalf("Get(%d) of all = %d, %v", k, v, ok)
		}
		if v, ok := m.Get(k); ok != (k%2 == 1) || ok && v != k {
			t.Fatalf("Get(%d) = %d, %v", k, v, ok)
		}
	}
	gone := map[int]bool{}
	for c := range m.Diff(all) {
		if !c.Had || c.Has || c.Key%2 != 0 || c.Old != c.Key {
			t.Fatalf("%+v is no deletion of an even key", c)
		}
		gone[c.Key] = true
	}
	if len(gone) != n/2 {
		t.Fatalf("Diff tells of %d deletions, want %d", len(gone), n/2)
	}
}
