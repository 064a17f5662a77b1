package netctl

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
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

// files returns a document's YAML blocks that begin with their file's name.
func files(text string) map[string]string {
	out := map[string]string{}
	for i, block := range strings.Split(text, "```") {
		body, ok := strings.CutPrefix(block, "yaml\n# ")
		if name, _, _ := strings.Cut(body, "\n"); ok && i%2 == 1 {
			out[strings.TrimSpace(name)] = body[len(name):]
		}
	}
	return out
}

// The console blocks of the user guides print what they say, one after the
// other on one cluster, beside the files that YAML blocks show.
func TestConsoleBlocksPrintWhatGuidesSay(t *testing.T) {
	docs := map[string]int{"netctl.md": 20, "apply.md": 7, "moving-from-1x.md": 1}
	for _, b := range pagetest.Blocks(t) {
		if _, runs := docs[strings.TrimPrefix(b.Page, "docs/how-to/")]; b.Language == "console" && !runs {
			t.Errorf("%s:%d is not run", b.Page, b.Line)
		}
	}
	for doc, least := range docs {
		t.Run(doc, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/how-to/" + doc)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(t.TempDir())
			for name, content := range files(string(text)) {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			runSteps(t, consoleSteps(string(text)), least)
		})
	}
}

func runSteps(t *testing.T, steps []step, least int) {
	t.Helper()
	url := startNetmaster(t)
	if len(steps) < least {
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

// TestKindsAreDocumented: apply.md names every kind of document.
func TestKindsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/how-to/apply.md")
	if err != nil {
		t.Fatal(err)
	}
	_, kinds, _ := strings.Cut(string(text), "## Kinds")
	kinds, _, _ = strings.Cut(kinds, "\n## ")
	for _, k := range objectKinds() {
		if !strings.Contains(kinds, "`"+k.name+"`") {
			t.Errorf("apply.md, Kinds, lacks %s", k.name)
		}
	}
}
