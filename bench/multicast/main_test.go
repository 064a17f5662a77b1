package main

import "testing"

// The ratio is computed from adjacent samples, not from medians.
func TestRatio(t *testing.T) {
	if got := ratio([]float64{10, 20, 90}, []float64{20, 10, 30}); got != 2 {
		t.Errorf("%v, want 2", got)
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("%v, want 2.5", got)
	}
}
