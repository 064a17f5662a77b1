package stats

import "testing"

// The ratio is computed from adjacent samples, not from medians, and lies in its interval.
func TestCompareIsOfAdjacentSamples(t *testing.T) {
	if got := Compare([]float64{10, 20, 90}, []float64{20, 10, 30}); got.Median != 2 || got.Low > 2 || got.High < 2 {
		t.Errorf("%v, want 2", got)
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("%v, want 2.5", got)
	}
}
