package main

import (
	"strings"
	"testing"
)

const run = `# title

What is measured

| path | stream (Gbit/s) | ratio to veth, 95 % interval |
|---|---|---|
| veth | 40 | 1.000 [1.000, 1.000] |
| ours | 20 | 0.500 [0.4, 0.6] |

another

| plugin | ADD p50 |
|---|---|
| ours | 10 |
| ours | 30 |
| stock | missed |
`

func TestComparisonHasBothRunsAndTheirRatio(t *testing.T) {
	var before, after figures
	for range 3 {
		before.add(run)
		after.add(strings.NewReplacer("0.500 [", "0.250 [", "| 10 |", "| 5 |", "| 30 |", "| 60 |").Replace(run))
	}
	got := compare(before, after)
	for _, want := range []string{
		"| path ours | stream (Gbit/s), ratio to veth, 95 % interval | 0.5 | 0.25 | 0.500 [0.500, 0.500] |",
		"| plugin ours | ADD p50 | 10 | 5 | 0.500 [0.500, 0.500] |",
		"| plugin ours (2) | ADD p50 | 30 | 60 | 2.000 [2.000, 2.000] |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "stock") || strings.Contains(got, "veth |") {
		t.Errorf("a cell without a number, or one that never changes, became a figure:\n%s", got)
	}
}
