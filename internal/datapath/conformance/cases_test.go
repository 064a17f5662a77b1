package conformance

import (
	"slices"
	"strings"
	"testing"
)

// TestCasesPassAndDropProbes checks that the generated policies are enough and matter: at least
// 30, none with a problem, each with probes that pass and probes that do not
// (except where the policy denies or allows everything), and no two the same.
func TestCasesPassAndDropProbes(t *testing.T) {
	top := StandardTopology()
	probes := Probes(top)
	cases := Cases(top)
	if len(cases) < 30 {
		t.Errorf("%d cases, want 30 at least", len(cases))
	}
	mixed, seen := 0, map[string]string{}
	for _, c := range cases {
		w, err := NewWorld(top, c)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for host, p := range w.Problems {
			if len(p) > 0 {
				t.Errorf("%s: problems on %s: %v", c.Name, host, p)
			}
		}
		row, yes := make([]byte, len(probes)), 0
		for i, p := range probes {
			row[i] = '.'
			if ok, _ := w.Reach(p); ok {
				row[i] = 'X'
				yes++
			}
		}
		if yes > 0 && yes < len(probes) {
			mixed++
		}
		seen[string(row)] = c.Name
		t.Logf("%s: %d of %d", c.Name, yes, len(probes))
	}
	if len(seen) < len(cases)*2/3 {
		t.Errorf("%d cases have only %d different outcomes", len(cases), len(seen))
	}
	if mixed < len(cases)*2/3 {
		t.Errorf("only %d of %d cases let some probes pass and stop others", mixed, len(cases))
	}
}

// TestCasesHaveEveryPairOfValues checks that every pair of values of two dimensions occurs.
func TestCasesHaveEveryPairOfValues(t *testing.T) {
	rows := pairwise(dimensions)
	for d1 := range dimensions {
		for d2 := range d1 {
			have := map[[2]int]bool{}
			for _, r := range rows {
				have[[2]int{r[d1], r[d2]}] = true
			}
			if want := len(dimensions[d1]) * len(dimensions[d2]); len(have) != want {
				t.Errorf("dimensions %d and %d: %d of %d pairs", d1, d2, len(have), want)
			}
		}
	}
}

// TestSampleHasEveryValue checks that a sample has every value, that its seed decides it, and
// that other seeds come to other cases, so that all are tried in time.
func TestSampleHasEveryValue(t *testing.T) {
	cases := Cases(StandardTopology())
	tried := map[string]bool{}
	for seed := range uint64(40) {
		a, b := Sample(cases, seed), Sample(cases, seed)
		values := map[[2]int]bool{}
		for i, c := range a {
			if c.Name != b[i].Name {
				t.Fatalf("seed %d: case %d is %s, then %s", seed, i, c.Name, b[i].Name)
			}
			tried[c.Name] = true
			for d, v := range strings.Split(c.Name, "-")[1:] {
				values[[2]int{d, slices.Index(dimensions[d], v)}] = true
			}
		}
		want := 0
		for _, d := range dimensions {
			want += len(d)
		}
		if len(values) != want || len(a) > len(cases)/2 {
			t.Errorf("seed %d: %d cases of %d with %d values, want all %d", seed, len(a), len(cases), len(values), want)
		}
	}
	if len(tried) != len(cases) {
		t.Errorf("40 seeds tried %d cases of %d", len(tried), len(cases))
	}
}

// TestSeedsRunEachTestInOneWay checks that every seed has each test that attaching may change run in
// exactly one way, and that a few seeds have every way run every test.
func TestSeedsRunEachTestInOneWay(t *testing.T) {
	const ways = 2
	for i := range suite {
		run := map[[2]any]bool{}
		for seed := range uint64(3 * ways) {
			now := 0
			for n := range ways {
				for _, programs := range []bool{false, true} {
					if turn(seed, i, n, ways, programs) {
						run[[2]any{n, programs}] = true
						if !programs {
							now++
						}
					}
				}
			}
			if now != 1 {
				t.Errorf("seed %d has test %d run in %d ways", seed, i, now)
			}
		}
		if len(run) != 2*ways {
			t.Errorf("of test %d some way is never its turn: %v", i, run)
		}
	}
}
