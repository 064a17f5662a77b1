package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// report is what a run found, for people (text) and programs (JSON).
type report struct {
	stats.Run
	Tables  []table  `json:"tables"`
	Targets []target `json:"targets"`
}

type table struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// target is something that is wanted, and whether it holds.
type target struct {
	What   string  `json:"what"`
	Wanted string  `json:"wanted"`
	Found  string  `json:"found"`
	Value  float64 `json:"value"`
	Limit  float64 `json:"limit"`
	Holds  bool    `json:"holds"`
}

func (r *report) table(title string, columns ...string) *table {
	r.Tables = append(r.Tables, table{Title: title, Columns: columns})
	return &r.Tables[len(r.Tables)-1]
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// atLeast and atMost judge a value and say so at once.
func (r *report) atLeast(what string, value, limit float64, found string) {
	r.judge(target{what, fmt.Sprintf("at least %g", limit), found, value, limit, value >= limit})
}

func (r *report) atMost(what string, value, limit float64, found string) {
	r.judge(target{what, fmt.Sprintf("at most %g", limit), found, value, limit, value <= limit && value > 0})
}

func (r *report) judge(t target) {
	if math.IsNaN(t.Value) || math.IsInf(t.Value, 0) { // nothing came through on one of the paths
		t.Value, t.Holds = 0, false
	}
	r.Targets = append(r.Targets, t)
	fmt.Fprintln(os.Stderr, t)
}

func (t target) String() string {
	verdict := "HOLDS  "
	if !t.Holds {
		verdict = "MISSED "
	}
	return fmt.Sprintf("%s %s: %s, wanted %s", verdict, t.What, t.Found, t.Wanted)
}

// paths writes the table of a section: medians, and ratios to the first path.
func (r *report) paths(title string, paths []path, res results, metrics ...metric) {
	columns := []string{"path"}
	for _, m := range metrics {
		columns = append(columns, m.name+" ("+m.unit+")", "ratio to "+paths[0].name+", 95 % interval")
	}
	t := r.table(title, columns...)
	for _, p := range paths {
		cells := []any{p.name}
		for _, m := range metrics {
			s, base := res.of(p.name, m.name), res.of(paths[0].name, m.name)
			format := "%.2f"
			if stats.Median(s) > 1000 {
				format = "%.0f"
			}
			cells = append(cells, fmt.Sprintf(format, stats.Median(s)), stats.Compare(s, base).String())
		}
		t.row(cells...)
	}
}

func (r *report) text() string {
	var b strings.Builder
	b.WriteString(r.Text(""))
	all := append([]table{r.verdicts()}, r.Tables...)
	for _, t := range all {
		fmt.Fprintf(&b, "\n%s\n\n%s", t.Title, stats.Header(t.Columns...))
		for _, row := range t.Rows {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		}
	}
	return b.String()
}

func (r *report) verdicts() table {
	t := table{Title: "What is wanted, and whether it holds", Columns: []string{"figure", "wanted", "found", "holds"}}
	for _, x := range r.Targets {
		t.row(x.What, x.Wanted, x.Found, map[bool]string{true: "yes", false: "**no**"}[x.Holds])
	}
	return t
}

// write writes both forms into a directory.
func (r *report) write(dir string) error {
	if err := stats.WriteJSON(dir, r.Name, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Name+".md"), []byte(r.text()), 0o644)
}
