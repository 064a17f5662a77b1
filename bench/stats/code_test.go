package stats

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A report that is written does not make its code another one, and a test of the programs
// does not either; a scenario that is changed does.
func TestCodeIsOfWhatRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	for _, path := range []string{"api/a.go", "cmd/c.go", "internal/i.go", "internal/i_test.go", "go.mod", "go.sum", "test/matrix/scenario_test.go", "test/matrix/report.json"} {
		write(path, "1")
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "first")
	first := Code(t.Context(), "test/matrix")
	if first == "" {
		t.Fatal("committed code has no sum")
	}
	for _, tc := range []struct {
		path, when         string
		uncommitted, after bool // the sum is as before
	}{
		{"test/matrix/report.json", "a report is written", true, true},
		{"internal/i_test.go", "a test of the programs changed", true, true},
		{"internal/i.go", "a program changed", false, false},
		{"test/matrix/scenario_test.go", "a scenario changed", false, false},
		{"internal/new.go", "a program got a file", false, false},
	} {
		before := Code(t.Context(), "test/matrix")
		write(tc.path, tc.when)
		if got := Code(t.Context(), "test/matrix"); (got == before) != tc.uncommitted || !tc.uncommitted && got != "" {
			t.Errorf("%s: %q, before %q", tc.when, got, before)
		}
		git("add", ".")
		git("commit", "-qm", tc.when)
		if got := Code(t.Context(), "test/matrix"); got == "" || (got == before) != tc.after {
			t.Errorf("%s, committed: %q, before %q", tc.when, got, before)
		}
	}
}
