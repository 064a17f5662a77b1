package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// report is the text of one section's results.
type report struct{ text strings.Builder }

// newReport begins a report with what ran where and when.
func newReport(ctx context.Context, section string) *report {
	r := &report{}
	fmt.Fprintf(&r.text, "# %s\n\n", section)
	fmt.Fprintf(&r.text, "- date: %s, commit %s\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), output(ctx, "git", "rev-parse", "--short=12", "HEAD"))
	fmt.Fprintf(&r.text, "- machine: %s, %d cores, kernel %s, %s\n", cpu(), runtime.NumCPU(), output(ctx, "uname", "-r"), runtime.Version())
	fmt.Fprintf(&r.text, "- with: %s; %s\n", firstLine(output(ctx, "etcd", "--version")), firstLine(output(ctx, "ovs-vswitchd", "--version")))
	fmt.Fprintf(&r.text, "- command: `go run ./bench/cluster %s`\n", strings.Join(os.Args[1:], " "))
	fmt.Fprintf(&r.text, "- load of the machine before (1, 5, 15 min): %s\n", load())
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

func output(ctx context.Context, name string, args ...string) string {
	b, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return name + " unknown"
	}
	return strings.TrimSpace(string(b))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func cpu() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "unknown processor"
}

func load() string {
	b, err := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], " ")
}
