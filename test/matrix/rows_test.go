package matrix

import (
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

//go:embed missing.txt
var missingText string

// TestRowsHaveWhatTheyMust: each value, each pair of values and each triple of runtime,
// security and driver that a cluster can have occurs, and none that it cannot.
func TestRowsHaveWhatTheyMust(t *testing.T) {
	rows, met := Rows()
	if n := len(dimensions()[dimRuntime].values) * 4 * 3; met[3] != n {
		t.Errorf("%d triples of runtime, security and driver, want %d", met[3], n)
	}
	for _, c := range cannot {
		if slices.ContainsFunc(rows, func(r Row) bool { return r.has(c.values) }) {
			t.Errorf("a row has %s, which cannot be: %s", c.values, c.reason)
		}
	}
	for _, values := range []string{"runtime=docker driver=mixed", "security=own store=consul3", "network=infra family=ipv6", "environment=slash32 driver=ebpf", "store=embedded3 security=turned"} {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.has(values) }) {
			t.Errorf("no row has %s", values)
		}
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.ID()] {
			t.Errorf("two rows are %s", r.ID())
		}
		seen[r.ID()] = true
	}
}

// TestMissingNamesValues: a line of missing.txt names values that there are, and what is missing.
func TestMissingNamesValues(t *testing.T) {
	if _, err := readMissing(missingText); err != nil {
		t.Error(err)
	}
	got, err := readMissing("# nothing\n\nruntime=docker driver=" + testcluster.DriverOVS + ": the shape\n")
	if err != nil || len(got) != 1 || got[0] != (missing{"runtime=docker driver=ovs", "the shape"}) {
		t.Errorf("%v %v", got, err)
	}
	for _, bad := range []string{"runtime=none: x", "runtime=docker"} {
		if _, err := readMissing(bad); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestReportHasRowsOfThisCodeOnly: a result of other code does not count, and goes with its row.
func TestReportHasRowsOfThisCodeOnly(t *testing.T) {
	rows, _ := Rows()
	var r report
	r.put(result{ID: rows[1].ID(), Code: "a"}, rows)
	r.put(result{ID: rows[0].ID(), Code: "a"}, rows)
	r.put(result{ID: rows[1].ID(), Code: "b"}, rows)
	if r.has(rows[1].ID(), "a") || !r.has(rows[1].ID(), "b") || r.has(rows[2].ID(), "a") || r.has(rows[0].ID(), "") || len(r.Rows) != 2 || r.Rows[0].ID != rows[0].ID() {
		t.Errorf("%+v", r)
	}
	r.put(result{ID: rows[3].ID()}, rows[1:])
	if len(r.Rows) != 2 || r.Rows[0].ID != rows[1].ID() {
		t.Errorf("%+v", r)
	}
}
