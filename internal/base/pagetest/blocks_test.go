package pagetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBlocksHaveTheMarkAboveThem: blocks have the mark right above them, and their text without the list's
// indentation.
func TestBlocksHaveTheMarkAboveThem(t *testing.T) {
	text := strings.ReplaceAll(`# Title
<!-- run: netctl -->
'''sh
a
  b
'''
<!-- not run: it is far above -->

1. item

   '''text
   out
   '''
'''
'''`, "'''", "```")
	want := []Block{{"p.md", 3, "sh", "run: netctl", "a\n  b\n"}, {"p.md", 11, "text", "", "out\n"}, {"p.md", 14, "", "", ""}}
	if d := cmp.Diff(want, blocksOf("p.md", text)); d != "" {
		t.Error(d)
	}
}

// TestCommandLinesAreSplitAsByAShell: what pages write is taken apart as a shell does it.
func TestCommandLinesAreSplitAsByAShell(t *testing.T) {
	for script, want := range map[string]string{
		"a b c":                                   "a|b|c",
		"a b   # comment; c":                      "a|b",
		"X=1 a 'b c' --d=\"e f\"":                 "a|b c|--d=e f",
		"a \\\n  b\nc":                            "a|b / c",
		"a >out 2>&1 & b <in":                     "a / b",
		"T=$(a -q)\nb > x | c && d || e; f":       "a|-q / b / c / d / e / f",
		"a - >x-$(date +%F).y":                    "a|- / date|+%F / .y",
		"source <(a b)":                           "source / a|b",
		"cat >f <<'E'\nnot a command\nE\na":       "cat / a",
		"for x in 1; do\n  a $x\ndone":            "for|x|in|1 / a|$x / done",
		"(umask 077; a b)":                        "umask|077 / a|b",
		"ip netns exec m1 a -- b":                 "a|--|b",
		"a <<< '{\"x\": 1}'":                      "a",
		"a --set 'b={1,2}' \"$X\" \"$Y:9\" ${Z}1": "a|--set|b={1,2}|$X|$Y:9|${Z}1",
	} {
		var got []string
		for _, words := range commandLines(script) {
			got = append(got, strings.Join(words, "|"))
		}
		if got := strings.Join(got, " / "); got != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}
