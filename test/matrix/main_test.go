//go:build integration

package matrix

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
)

// Selects rows. Without -for all rows run. With it run the rows that can begin within that
// time: rows without a result of this code in the report, or without a report rows that the
// seed chooses.
var (
	only     = flag.String("row", "", "rows to run, by their ids or values, such as \"runtime=docker driver=ovs\"; empty = all")
	length   = flag.Duration("for", fromEnv(), "begin no row after that time (also $CONTIV_MATRIX_FOR); 0 = all rows")
	reportAt = flag.String("report", "", "`file` that has the results of former parts and gets this one's; empty = none")
)

func fromEnv() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("CONTIV_MATRIX_FOR")) // 0 without one
	return d
}

// TestMatrix runs rows.
func TestMatrix(t *testing.T) {
	rows, met := Rows()
	gaps, err := readMissing(missingText)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows have all of %d pairs and %d triples of values", len(rows), met[2], met[3])
	bin, code, begun := binaries(t), stats.Code(t.Context(), "test/matrix"), time.Now()
	var rep report
	if *reportAt != "" && code == "" {
		t.Fatal("a report is of committed code: commit what has changed below api, cmd, internal and test/matrix")
	}
	if *reportAt != "" {
		if rep, err = readReport(*reportAt); err != nil {
			t.Fatal(err)
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool {
		return rep.has(r.ID(), code) || *only != "" && !r.has(*only) && !slices.Contains(strings.Fields(*only), r.ID())
	})
	if *length > 0 && *reportAt == "" {
		rand.New(rand.NewPCG(conformance.Seed(), 0)).Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		t.Logf("rows that -seed %d chooses, as many as begin within %v", conformance.Seed(), *length)
	}
	for i, r := range chosen {
		if *length > 0 && time.Since(begun) > *length {
			t.Logf("%d rows are left", len(chosen)-i)
			break
		}
		t.Run(r.ID(), func(t *testing.T) {
			if lacks := need(r); len(lacks) > 0 {
				if *length > 0 && *reportAt == "" {
					t.Skip(strings.Join(lacks, "; "))
				}
				t.Fatal(strings.Join(lacks, "; "))
			}
			start := time.Now()
			err := runRow(t, r, bin)
			now := result{ID: r.ID(), Row: r.String(), Code: code, Commit: stats.Output(t.Context(), "git", "rev-parse", "--short=12", "HEAD"), Date: start.UTC().Truncate(time.Second), Seconds: int(time.Since(start).Seconds())}
			gap := slices.IndexFunc(gaps, func(m missing) bool { return r.has(m.values) })
			switch {
			case err != nil && gap < 0:
				t.Fatalf("%s: %v", r, err)
			case err != nil:
				now.Missing = gaps[gap].what
				t.Logf("%s: not yet: %s: %v", r, gaps[gap].what, err)
			case gap >= 0:
				t.Fatalf("%s works: take %q out of missing.txt", r, gaps[gap].values)
			default:
				t.Logf("%s: %d s", r, now.Seconds)
			}
			if *reportAt != "" {
				rep.put(now, rows)
				if err := rep.write(*reportAt); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
