package netctl

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestWrappedTextFitsTheTerminal: lines are no longer than the terminal, but for words that
// are; without one the text is a line.
func TestWrappedTextFitsTheTerminal(t *testing.T) {
	text := "  host h1: the cluster's store cannot be watched: " + strings.Repeat("wörter ", 30) + strings.Repeat("x", 60) + " end"
	if got := wrap(text, "    ", 0); got != text {
		t.Errorf("without a terminal: %q", got)
	}
	got := wrap(text, "    ", 50)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(text), " ") || !strings.HasPrefix(got, "  host") {
		t.Errorf("it says %q", got)
	}
	for i, line := range strings.Split(got, "\n") {
		if utf8.RuneCountInString(line) > 50 && !strings.Contains(line, "xxx") || i > 0 && !strings.HasPrefix(line, "    ") {
			t.Errorf("line %d: %q", i, line)
		}
	}
}

// TestDoctorOnATerminal: on a terminal a finding takes lines that fit it, not a row.
func TestDoctorOnATerminal(t *testing.T) {
	for line := range strings.SplitSeq(findingText([]string{"warning", "hosts", "host h1", strings.Repeat("what is wrong ", 20), strings.Repeat("what to do ", 20)}, 60), "\n") {
		if utf8.RuneCountInString(line) > 60 {
			t.Errorf("%q", line)
		}
	}
}
