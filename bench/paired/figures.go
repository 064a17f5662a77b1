package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// figures are the numbers of a benchmark's tables (Markdown), by name, one of
// each run, and the names in the order of the tables.
type figures struct {
	names  []string
	values map[string][]float64
}

// add takes the tables of one run. A figure's name is its row's first cell
// (with a number, should more rows begin so) and its column's heading; a
// heading that begins with "ratio" belongs to the column before it.
func (f *figures) add(text string) {
	if f.values == nil {
		f.values = map[string][]float64{}
	}
	var heads []string
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			heads = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case heads == nil:
			heads = cells
			for i := 1; i < len(heads); i++ {
				if strings.HasPrefix(heads[i], "ratio") {
					heads[i] = heads[i-1] + ", " + heads[i]
				}
			}
			continue
		case strings.HasPrefix(cells[0], "---"):
			continue
		}
		row := heads[0] + " " + cells[0]
		if seen[row]++; seen[row] > 1 {
			row += fmt.Sprintf(" (%d)", seen[row])
		}
		for i := 1; i < min(len(cells), len(heads)); i++ {
			first, _, _ := strings.Cut(cells[i], " ")
			v, err := strconv.ParseFloat(first, 64)
			if err != nil {
				continue
			}
			name := row + " | " + heads[i]
			if _, ok := f.values[name]; !ok {
				f.names = append(f.names, name)
			}
			f.values[name] = append(f.values[name], v)
		}
	}
}

// compare gives a table of what both have: medians, and the median of the
// turns' ratios with its 95 % interval by bootstrap.
func compare(before, after figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| row | figure | before | after | after to before, 95 %% interval |\n|---|---|---|---|---|\n")
	for _, name := range before.names {
		x, y := before.values[name], after.values[name]
		if len(x) != len(y) || constant(append(slices.Clone(x), y...)) { // a constant is a parameter, no figure
			continue
		}
		var base, now []float64
		for i := range x {
			if x[i] != 0 {
				base, now = append(base, x[i]), append(now, y[i])
			}
		}
		if len(base) > 0 {
			fmt.Fprintf(&b, "| %s | %.4g | %.4g | %s |\n", name, stats.Median(x), stats.Median(y), stats.Compare(now, base))
		}
	}
	return b.String()
}

func constant(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
}
