package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// report is the text of one section's results.
type report struct{ text strings.Builder }

// newReport begins a report with what ran where and when.
func newReport(ctx context.Context, section string) *report {
	r := &report{}
	fmt.Fprintf(&r.text, "# %s\n\n", section)
	fmt.Fprintf(&r.text, "- date: %s, commit %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), stats.Output(ctx, "git", "rev-parse", "--short=12", "HEAD"))
	fmt.Fprintf(&r.text, "- machine: %s, %d cores, kernel %s, %s\n", stats.Processor(), runtime.NumCPU(), stats.Output(ctx, "uname", "-r"), runtime.Version())
	fmt.Fprintf(&r.text, "- with: %s; %s\n", firstLine(stats.Output(ctx, "etcd", "--version")), firstLine(stats.Output(ctx, "ovs-vswitchd", "--version")))
	fmt.Fprintf(&r.text, "- command: `go run ./bench/cluster %s`\n", strings.Join(os.Args[1:], " "))
	fmt.Fprintf(&r.text, "- load of the machine before (1, 5, 15 min): %s\n", stats.Load())
	return r
}

func (r *report) table(title string, header ...string) {
	fmt.Fprintf(&r.text, "\n%s\n\n| %s |\n|%s\n", title, strings.Join(header, " | "), strings.Repeat("---|", len(header)))
}

func (r *report) row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(&r.text, "| %v ", c)
	}
	fmt.Fprintln(&r.text, "|")
}

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
