package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/bench/stats"
)

// Between these lines of the page stands what is made of the reports.
const (
	madeFrom = "<!-- made by `make chaos`, of bench/results/ledger -->\n"
	madeTo   = "<!-- end -->\n"
)

// maxNamedLeaks is how many things left behind are named on the page, of each row.
const maxNamedLeaks = 5

// writePage rewrites the page's table.
func writePage(page, dir string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	had, err := read(dir)
	if err != nil {
		return err
	}
	text, err := render(string(b), had)
	if err != nil {
		return fmt.Errorf("page %s: %w", page, err)
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// render replaces a page's table.
func render(page string, had map[string]report) (string, error) {
	head, rest, ok := strings.Cut(page, madeFrom)
	_, foot, ok2 := strings.Cut(rest, madeTo)
	if !ok || !ok2 {
		return "", fmt.Errorf("the lines %q and %q are not there, in this order", strings.TrimSpace(madeFrom), strings.TrimSpace(madeTo))
	}
	known := map[string]bool{}
	for _, r := range rows() {
		known[r.name] = true
	}
	for name := range had {
		if !known[name] {
			return "", fmt.Errorf("the report %s.json is of no row; delete it", name)
		}
	}
	return head + madeFrom + table(rows(), had) + madeTo + foot, nil
}

// table is the ledger: what each row wants and found, and what is left behind.
func table(rows []row, had map[string]report) string {
	var b strings.Builder
	b.WriteString(stats.Header("killed with -9", "data plane", "kills", "packets lost", "longest gap", "TCP broken", "API refused, longest", "ADD, longest", "until added", "left behind", "run"))
	var notes []string
	for _, r := range rows {
		rep, ok := had[r.name]
		if !ok {
			fmt.Fprintf(&b, "| %s | %s | not run yet |%s\n", r.killed, r.plane(), strings.Repeat(" |", 8))
			continue
		}
		b.WriteString(line(r, &rep) + "\n")
		for i, l := range rep.Leaks {
			if i == maxNamedLeaks {
				notes = append(notes, fmt.Sprintf("- %s, %s: %d more, in its report\n", r.killed, r.plane(), len(rep.Leaks)-maxNamedLeaks))
				break
			}
			notes = append(notes, fmt.Sprintf("- %s, %s, left behind: %s\n", r.killed, r.plane(), l))
		}
	}
	if len(notes) > 0 {
		b.WriteString("\n" + strings.Join(notes, ""))
	}
	return b.String()
}

// line is a row's line. What is not as wanted is bold.
func line(r row, rep *report) string {
	lost := fmt.Sprintf("%d of %d", rep.Lost, rep.Sent)
	bad := rep.Lost
	if r.mayLose {
		lost, bad = fmt.Sprintf("%s, %d of them later", lost, rep.Lost-rep.During), rep.Lost-rep.During
	}
	refused := fmt.Sprintf("%.2f s, %d of %d failed", seconds(rep.Refusal), rep.Failed, rep.Requests)
	if r.driver == bridged {
		refused = "there is none"
	}
	run := fmt.Sprintf("%s, %s, %d s", rep.Date.Format("2006-01-02"), short(rep.Commit), rep.Seconds)
	if rep.Busy {
		run += ", busy machine (load " + strings.ReplaceAll(rep.Load[0], " ", ", ") + ")"
	}
	return fmt.Sprintf("| %s | %s | %d | %s | %.2f s | %s | %s | %.2f s, %d of %d failed | %.2f s | %s | %s |",
		r.killed, r.plane(), rep.Kills, mark(lost, bad > 0), seconds(rep.Gap), mark(strconv.Itoa(rep.Broken), rep.Broken > 0),
		mark(refused, r.refusal > 0 && rep.Refusal > r.refusal), seconds(rep.Add), rep.AddFailed, rep.Adds, seconds(rep.Added),
		mark(strconv.Itoa(len(rep.Leaks)), len(rep.Leaks) > 0), run)
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }

func short(commit string) string { return commit[:min(len(commit), 8)] }

// mark is bold for what is not as wanted.
func mark(s string, bad bool) string {
	if bad {
		return "**" + s + "**"
	}
	return s
}
