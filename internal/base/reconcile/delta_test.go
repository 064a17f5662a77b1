package reconcile

import (
	"maps"
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDelta compares Delta with a full comparison over random edits, and
// checks that carrying out what is pending leaves nothing.
func TestDelta(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	d := NewDelta[int](func(a, b int) bool { return a == b })
	want, have := map[int]int{}, map[int]int{}
	for step := range 2000 {
		k, v := rng.Intn(20), rng.Intn(3)
		switch rng.Intn(4) {
		case 0:
			d.Want(k, v)
			want[k] = v
		case 1:
			d.Unwant(k)
			delete(want, k)
		case 2:
			d.Have(k, v)
			have[k] = v
		case 3:
			d.Gone(k)
			delete(have, k)
		}
		patched := maps.Clone(have)
		for c := range d.Pending() {
			if c.Wanted {
				patched[c.Key] = c.Want
			} else {
				delete(patched, c.Key)
			}
		}
		if diff := cmp.Diff(want, patched); diff != "" {
			t.Fatalf("step %d: have + Pending (-want +got):\n%s", step, diff)
		}
	}
	for c := range d.Pending() {
		if c.Wanted {
			d.Have(c.Key, c.Want)
		} else {
			d.Gone(c.Key)
		}
	}
	if d.Len() != 0 {
		t.Errorf("%d keys pending after all was done", d.Len())
	}
}
