package covering

import (
	"slices"
	"testing"
)

// TestEveryCombinationThatCanBeOccurs: all pairs occur, and the triples of one set, except
// combinations that a condition excludes, directly or because no third value is left.
func TestEveryCombinationThatCanBeOccurs(t *testing.T) {
	dims := []int{4, 3, 5, 2, 3}
	possible := func(r []int) bool {
		if r[0] == 1 && r[3] != Open && r[3] != 0 {
			return false
		}
		return r[2] != 4 || r[3] != 0 // so 0 = 1 with 2 = 4 cannot be either
	}
	sets := append([][]int{{0, 1, 2}}, Pairs(len(dims))...)
	rows, met := Rows(dims, sets, possible)
	total := map[int]int{}
	for s, set := range sets {
		each(dims, set, func(values []int) {
			in := slices.ContainsFunc(rows, func(r []int) bool {
				for i, d := range set {
					if r[d] != values[i] {
						return false
					}
				}
				return true
			})
			can := false
			each(dims, []int{0, 1, 2, 3, 4}, func(r []int) {
				k := of(s, set, r)
				can = can || slices.Equal(k.values[:len(set)], values) && possible(r)
			})
			if in != can {
				t.Errorf("values %v of %v occur: %v, can: %v", values, set, in, can)
			}
			if can {
				total[len(set)]++
			}
		})
	}
	for _, r := range rows {
		if !possible(r) || slices.Contains(r, Open) {
			t.Errorf("row %v", r)
		}
	}
	if met[2] != total[2] || met[3] != total[3] {
		t.Errorf("met %v, want %v", met, total)
	}
	if len(rows) > 75 {
		t.Errorf("%d rows for %v", len(rows), total)
	}
	t.Logf("%d rows meet %v", len(rows), met)
}
