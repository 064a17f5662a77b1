//go:build integration

package matrix

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

var only = flag.String("row", "", "rows to run, by their ids or values, such as \"runtime=docker driver=ovs\"; empty = all")

// TestMatrix runs the rows.
func TestMatrix(t *testing.T) {
	rows, met := Rows()
	gaps, err := readMissing(missingText)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows have all of %d pairs and %d triples of values", len(rows), met[2], met[3])
	bin := binaries(t)
	for _, r := range rows {
		if !(*only == "" || r.has(*only) || slices.Contains(strings.Fields(*only), r.ID())) {
			continue
		}
		t.Run(r.ID(), func(t *testing.T) {
			if lacks := need(r); len(lacks) > 0 {
				t.Fatal(strings.Join(lacks, "; "))
			}
			start := time.Now()
			err := runRow(t, r, bin)
			gap := slices.IndexFunc(gaps, func(m missing) bool { return r.has(m.values) })
			switch {
			case err != nil && gap >= 0:
				t.Logf("%s: not yet: %s: %v", r, gaps[gap].what, err)
			case err != nil:
				t.Errorf("%s: %v", r, err)
			case gap >= 0:
				t.Errorf("%s works: take %q out of missing.txt", r, gaps[gap].values)
			default:
				t.Logf("%s: %v", r, time.Since(start).Round(100*time.Millisecond))
			}
		})
	}
}
