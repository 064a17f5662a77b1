package cli

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// step is one command of a console block and what it must print.
type step struct {
	line string // of the document
	want string
}

// consoleSteps returns the commands of a document's console blocks, in order.
func consoleSteps(text string) []step {
	var steps []step
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.TrimSpace(line) == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: strings.TrimSpace(line[2:])})
		default:
			steps[len(steps)-1].want += line
		}
	}
	return steps
}

// The console blocks of the user guide print what they say, one after the
// other on one cluster.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/user/netctl.md")
	if err != nil {
		t.Fatal(err)
	}
	url := startNetmaster(t)
	steps := consoleSteps(string(text))
	if len(steps) < 20 {
		t.Fatalf("only %d commands found", len(steps))
	}
	last := 0
	for _, s := range steps {
		got := ""
		if s.line == "echo $?" {
			got = strconv.Itoa(last) + "\n"
		} else {
			words := strings.Fields(s.line)
			if words[0] != "netctl" {
				t.Fatalf("cannot run %q", s.line)
			}
			r := netctl(t, url, words[1:]...)
			got, last = r.out+r.errOut, r.code
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.line, diff)
		}
	}
}
