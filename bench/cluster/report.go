package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// report is the text of one section's results.
type report struct{ text strings.Builder }

// newReport begins a report with what ran where and when.
func newReport(ctx context.Context, section string) *report {
	r := &report{}
	r.text.WriteString(stats.NewRun(ctx, section, "cluster").Text(firstLine(stats.Output(ctx, "etcd", "--version")) + "; " + firstLine(stats.Output(ctx, "ovs-vswitchd", "--version"))))
	return r
}

func (r *report) table(title string, columns ...string) {
	fmt.Fprintf(&r.text, "\n%s\n\n%s", title, stats.Header(columns...))
}

func (r *report) row(cells ...any) { r.text.WriteString(stats.Row(cells...)) }

// misses says below a table which of its figures are not what was wanted.
func (r *report) misses(what []string) {
	if len(what) == 0 {
		fmt.Fprintln(&r.text, "\nAll of what was wanted was reached.")
		return
	}
	fmt.Fprintf(&r.text, "\n**Missed:** %s.\n", strings.Join(what, "; "))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
