package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Run describes a run of a benchmark at the head of its report.
type Run struct {
	Name    string `json:"name"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
	Machine string `json:"machine"`
	Kernel  string `json:"kernel"`
	Command string `json:"command"`
	Load    string `json:"loadBefore"`
}

// NewRun describes this run of a program in bench.
func NewRun(ctx context.Context, name, program string) Run {
	return Run{
		Name: name, Date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), Commit: Commit(ctx), Machine: cores(), Kernel: kernel(ctx),
		Command: "go run ./bench/" + program + " " + strings.Join(os.Args[1:], " "), Load: Load(),
	}
}

// Text returns the head in Markdown; with names programs beside the benchmark, "" = none.
func (r Run) Text(with string) string {
	if with != "" {
		with = "- with: " + with + "\n"
	}
	return fmt.Sprintf("# %s\n\n- date: %s, commit %s\n- machine: %s, kernel %s, %s\n%s- command: `%s`\n- load of the machine before (1, 5, 15 min): %s\n",
		r.Name, r.Date, r.Commit, r.Machine, r.Kernel, runtime.Version(), with, r.Command, r.Load)
}

// Commit returns the commit that is checked out.
func Commit(ctx context.Context) string { return Output(ctx, "git", "rev-parse", "--short=12", "HEAD") }

// Machine returns the processor, how many cores it has, and the kernel.
func Machine(ctx context.Context) string { return cores() + ", kernel " + kernel(ctx) }

func cores() string { return fmt.Sprintf("%s, %d cores", Processor(), runtime.NumCPU()) }

func kernel(ctx context.Context) string { return Output(ctx, "uname", "-r") }

// Busy reports whether a load was too high for times to be fair.
func Busy(load string, limit float64) bool {
	first, _, _ := strings.Cut(load, " ")
	v, err := strconv.ParseFloat(first, 64)
	return err != nil || v >= limit
}

// Header returns the first lines of a table in Markdown.
func Header(columns ...string) string {
	return "| " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat("---|", len(columns)) + "\n"
}

// Row returns a line of a table in Markdown.
func Row(cells ...any) string {
	var b strings.Builder
	for _, c := range cells {
		fmt.Fprintf(&b, "| %v ", c)
	}
	return b.String() + "|\n"
}

// WriteJSON writes a report to the file NAME.json in a directory.
func WriteJSON(dir, name string, report any) error {
	b, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".json"), append(b, '\n'), 0o644)
}
