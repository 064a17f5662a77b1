package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/bench/stats"
)

const (
	pageFile   = "../../docs/reliability.md"
	reportsDir = "../results/ledger"
)

// TestPageIsMadeOfReports checks that the page says what the reports say.
func TestPageIsMadeOfReports(t *testing.T) {
	had, err := read(reportsDir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	want, err := render(string(b), had)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != want {
		t.Errorf("docs/reliability.md is not what bench/results/ledger makes of it: go run ./bench/ledger -write")
	}
	for name, r := range had {
		if r.Date.IsZero() || r.Commit == "" || r.Seconds <= 0 || r.Sent == 0 || (r.Requests == 0) != strings.HasSuffix(name, "-"+bridged) || r.Adds == 0 {
			t.Errorf("report %s lacks its date, commit or length, or had no traffic: %+v", name, r)
		}
		if !strings.HasPrefix(name, "nothing-") && r.Kills == 0 {
			t.Errorf("report %s: nothing was killed", name)
		}
	}
}

// lineOf is a row's line of the page.
func lineOf(t *testing.T, name string, r *report) string {
	t.Helper()
	for _, row := range rows() {
		if row.name == name {
			return line(row, r)
		}
	}
	t.Fatalf("there is no row %q", name)
	return ""
}

// TestMissesAreBold checks that what is not as wanted is bold, and nothing else.
func TestMissesAreBold(t *testing.T) {
	for _, c := range []struct {
		name, row string
		report    report
		bold      []string
	}{
		{"all well", "netmaster-leader-ebpf", report{traffic: traffic{Sent: 10}, requests: requests{Refusal: 500}}, nil},
		{"lost", "netplugin-ebpf", report{traffic: traffic{Sent: 10, Lost: 1, During: 1}}, []string{"**1 of 10**"}},
		{"lost as it may be", "ovs-vswitchd-ovs", report{traffic: traffic{Sent: 10, Lost: 2, During: 2}}, nil},
		{"lost later", "ovs-vswitchd-ovs", report{traffic: traffic{Sent: 10, Lost: 3, During: 2}}, []string{"**3 of 10, 1 of them later**"}},
		{"refused for too long", "netmaster-leader-ovs", report{requests: requests{Refusal: 501}}, []string{"**0.50 s, 0 of 0 failed**"}},
		{"refused, not asked", "netplugin-ovs", report{requests: requests{Refusal: 5000}}, nil},
		{"broken and left", "store-leader-ovs", report{traffic: traffic{Broken: 1}, Leaks: []string{"a", "b", "c"}}, []string{"**1**", "**3**"}},
	} {
		got := lineOf(t, c.row, &c.report)
		for _, b := range c.bold {
			if !strings.Contains(got, "| "+b+" |") {
				t.Errorf("%s: %q is not in %s", c.name, b, got)
			}
		}
		if n := strings.Count(got, "**") / 2; n != len(c.bold) {
			t.Errorf("%s: %d cells are bold, want %d: %s", c.name, n, len(c.bold), got)
		}
	}
}

// TestPeersAreNamed checks that a row of a peer says whose bridge it is and that it has
// no API, and that a row of ours says neither.
func TestPeersAreNamed(t *testing.T) {
	for name, parts := range map[string][]string{
		"dockerd-bridge": {"| dockerd | Docker's own bridge |", "| there is none |"},
		"kubelet-bridge": {"| kubelet | the stock bridge plugin |", "| there is none |"},
		"dockerd-ebpf":   {"| dockerd | ebpf |", "| 0.70 s, 0 of 9 failed |"},
		"kubelet-ovs":    {"| kubelet | ovs |", "| 0.70 s, 0 of 9 failed |"},
	} {
		got := lineOf(t, name, &report{requests: requests{Refusal: 700, Requests: 9}})
		for _, p := range parts {
			if !strings.Contains(got, p) {
				t.Errorf("%s: %q is not in %s", name, p, got)
			}
		}
	}
}

// TestTableSaysWhatWasNotRun checks that no row is left out, that leaks are named, and
// that a report of a row that is no more is refused.
func TestTableSaysWhatWasNotRun(t *testing.T) {
	had := map[string]report{"netplugin-ebpf": {Row: "netplugin-ebpf", Date: time.Now(), Leaks: []string{"h1: links: 3, before 2"}}}
	text := table(rows(), had)
	if n := strings.Count(text, "not run yet"); n != len(rows())-1 {
		t.Errorf("%d rows are said not to be run, want %d:\n%s", n, len(rows())-1, text)
	}
	if !strings.Contains(text, "h1: links: 3, before 2") {
		t.Errorf("what is left behind is not named:\n%s", text)
	}
	had["gone-ebpf"] = report{Row: "gone-ebpf"}
	if _, err := render(madeFrom+madeTo, had); err == nil || !strings.Contains(err.Error(), "gone-ebpf") {
		t.Errorf("a report of no row: %v", err)
	}
}

// TestWrittenReportsAreReadAgain checks that what is written is read again, under its row's name.
func TestWrittenReportsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	r := &report{Row: "netplugin-ebpf", Commit: "c", traffic: traffic{Sent: 7}, Leaks: []string{}}
	if err := stats.WriteJSON(dir, r.Row, r); err != nil {
		t.Fatal(err)
	}
	had, err := read(dir)
	if err != nil || had[r.Row].Sent != 7 {
		t.Errorf("read %v, %v", had, err)
	}
	if err := os.Rename(dir+"/netplugin-ebpf.json", dir+"/netplugin-ovs.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := read(dir); err == nil {
		t.Error("a report under another row's name was taken")
	}
}

// TestDifferingCountsAreReported checks that a count is reported exactly if it is higher or lower than
// before.
func TestDifferingCountsAreReported(t *testing.T) {
	got := differences(map[string]int{"a": 1, "b": 2, "c": 1}, map[string]int{"a": 1, "b": 1, "d": 1})
	if want := "b: 1, before 2; c: 0, before 1; d: 1, before 0"; strings.Join(got, "; ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoteKeepsKinds checks that errors that differ in numbers only are one.
func TestNoteKeepsKinds(t *testing.T) {
	var all []string
	for _, e := range []string{"c1 failed", "c2 failed", "other"} {
		all = note(all, errors.New(e))
	}
	if len(all) != 2 {
		t.Errorf("kept %q", all)
	}
}
