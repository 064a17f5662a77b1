package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Jain's index is 1 where all have the same, and 1/n where one has all.
func TestJainsIndexMeasuresFairness(t *testing.T) {
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
func TestPairRowsCompareTwoFigures(t *testing.T) {
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

// A row says what is missed, UDP's by more than 2 % above, and what passes without a profile.
func TestRowListsItsMisses(t *testing.T) {
	late := []time.Duration{time.Millisecond, time.Millisecond, 21 * time.Millisecond}
	for _, tc := range []struct {
		x       want
		r       result
		without []float64
		end     string
	}{
		{want{mbit: 10, streams: 1}, result{seconds: []float64{9.6, 10.4}}, nil, "| 96.0, 104.0 |  | 0 of 0 |  | holds |\n"},
		{want{mbit: 10, streams: 1}, result{seconds: []float64{9.4, 10}}, nil, "| *rate missed* |\n"},
		{want{mbit: 10, streams: 1}, result{seconds: []float64{10}, waits: late, lost: 1}, nil, "| 1.00 / 21.00 / 21.00 | 1 of 4 |  | holds, *wait missed* |\n"},
		{want{mbit: 10}, result{seconds: []float64{5, 10.1}}, nil, "| holds |\n"},
		{want{mbit: 10}, result{seconds: []float64{10.3}}, nil, "| *rate missed* |\n"},
		{want{mbit: 1000, streams: 1}, result{seconds: []float64{900, 1000}}, []float64{1800, 2000}, "| *rate missed*; 50 % of the 1900 Mbit/s without a profile |\n"},
	} {
		var w strings.Builder
		if row(&w, tc.x, tc.r, tc.without); !strings.HasSuffix(w.String(), tc.end) {
			t.Errorf("%q, want at its end %q", w.String(), tc.end)
		}
	}
}

// A run measures the rows that its flag names, and no others.
func TestRunMeasuresTheRowsOfItsFlag(t *testing.T) {
	all := options{seconds: 3, fairness: 10, rows: regexp.MustCompile("")}
	if n := len(all.wanted(10, sends)); n != len(runs)+2 {
		t.Errorf("%d rows", n)
	}
	all.rows = regexp.MustCompile("^10 Mbit/s sends cubic, 8, over")
	if got := all.wanted(10, sends); len(got) != 1 || got[0].seconds != 10 || len(all.wanted(10, receives))+len(all.wanted(100, sends)) != 0 {
		t.Errorf("%+v", got)
	}
}
