package main

import (
	"math"
	"strings"
	"testing"
)

// Jain's index is 1 where all have the same, and 1/n where one has all.
func TestJain(t *testing.T) {
	for _, tc := range []struct {
		shares []float64
		want   float64
	}{{[]float64{3, 3, 3, 3}, 1}, {[]float64{0, 8, 0, 0}, 0.25}, {[]float64{1, 3}, 0.8}, {[]float64{0, 0}, 0}} {
		if got := jain(tc.shares); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", tc.shares, got, tc.want)
		}
	}
}

// A row of pairs compares the two figures of each pair.
func TestPair(t *testing.T) {
	var w strings.Builder
	pair(&w, "x", [2][]float64{{100, 200, 400}, {100, 180, 404}})
	if want := "| x | 200 | 180 | 100.0, 90.0, 101.0 | unchanged |\n"; w.String() != want {
		t.Errorf("%q, want %q", w.String(), want)
	}
	w.Reset()
	if pair(&w, "x", [2][]float64{{100}, {80}}); !strings.Contains(w.String(), "differs") {
		t.Error(w.String())
	}
}
