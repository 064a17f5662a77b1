package main

import (
	"path/filepath"
	"testing"
)

func TestHangsAreNotKills(t *testing.T) {
	for out, want := range map[string]verdict{
		"--- FAIL: TestX (0.00s)\nFAIL\n":                   killed,
		"panic: runtime error: index out of range [1]\n":    killed,
		"panic: test timed out after 30s\nrunning tests:\n": hung,
	} {
		if got := verdictOf([]byte(out)); got != want {
			t.Errorf("%q: %s, want %s", out, got, want)
		}
	}
}

// TestReportKeepsVerdictsOfTheSameFile: a verdict counts again while its file stays as it is.
func TestReportKeepsVerdictsOfTheSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.tsv")
	r, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	m := mutant{file: "a.go", was: "if a {", end: 1, text: "x"}
	first, second := keyOf(m, []byte("if a {")), keyOf(m, []byte("if a {\n}"))
	other := keyOf(mutant{file: "b.go", was: "if a {", end: 1}, []byte("if a {"))
	if err := r.put(killed, first, other); err != nil {
		t.Fatal(err)
	}
	if r, err = readReport(path); err != nil || r.verdicts[first] != killed || r.verdicts[second] != "" {
		t.Fatalf("it has %v, %v", r.verdicts, err)
	}
	if err := r.put(survived, second); err != nil {
		t.Fatal(err)
	}
	if r, err = readReport(path); err != nil || len(r.verdicts) != 2 || r.verdicts[second] != survived || r.verdicts[other] != killed {
		t.Errorf("after a change it has %v, %v", r.verdicts, err)
	}
}

func TestDecisionsAreThere(t *testing.T) {
	judges, err := judgesOfDecisions("../..")
	if err != nil || len(judges) == 0 {
		t.Error(len(judges), err)
	}
	for _, j := range judges {
		if len(j.files) == 0 || len(j.tests) == 0 || len(j.flags) == 0 {
			t.Errorf("%s: files %q, packages %q, flags %q", j.dir, j.files, j.tests, j.flags)
		}
	}
}
