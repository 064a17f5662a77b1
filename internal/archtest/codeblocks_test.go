package archtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/netplugin/v2/internal/base/pagetest"
)

// runsRE is how a page says what becomes of a block of commands: CONTRIBUTING.md, Pages.
var runsRE = regexp.MustCompile(`^(run: [a-z0-9 ]+|not run: \S.+)$`)

// Each code block of a page runs in a test, or its page says why not; or it is output, a
// diagram, or a file that can be parsed.
func TestCodeBlocksRunOrSayWhyNot(t *testing.T) {
	var tests strings.Builder
	for _, f := range files(t) {
		if f.isGo() && (f.isTest() || strings.HasPrefix(f.name, "test/")) {
			tests.WriteString(f.text)
		}
	}
	blocks := pagetest.Blocks(t)
	for _, b := range blocks {
		if err := checkBlock(t.Context(), b); err != nil {
			t.Errorf("%s:%d: %v", b.Page, b.Line, err)
		}
		if name, marked := strings.CutPrefix(b.Mark, "run: "); marked && name != "netctl" && !strings.Contains(tests.String(), path.Base(b.Page)+`"`) {
			t.Errorf("%s:%d: no test names the page, so nothing runs the block", b.Page, b.Line)
		}
	}
	if len(blocks) < 250 {
		t.Errorf("only %d code blocks were found", len(blocks))
	}
}

// checkBlock says what is wrong with a code block.
func checkBlock(ctx context.Context, b pagetest.Block) error {
	switch b.Language {
	case "text", "mermaid", "console": // internal/netctl runs the last, all of them
		return nil
	case "yaml":
		for d := yaml.NewDecoder(strings.NewReader(b.Text)); ; {
			if err := d.Decode(new(any)); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
	case "json":
		return json.Unmarshal([]byte(b.Text), new(any))
	}
	if !runsRE.MatchString(b.Mark) {
		return fmt.Errorf("a block of language %q needs <!-- run: NAME --> or <!-- not run: REASON --> in the line above; output has the language text", b.Language)
	}
	if b.Language != "sh" {
		return nil
	}
	shell := exec.CommandContext(ctx, "bash", "-n")
	shell.Stdin = strings.NewReader(b.Text)
	if out, err := shell.CombinedOutput(); err != nil {
		return fmt.Errorf("bash cannot read it: %w: %s", err, out)
	}
	return nil
}

// The check of code blocks sees what it is for.
func TestCheckOfCodeBlocksFindsBadOnes(t *testing.T) {
	for _, b := range []pagetest.Block{
		{Language: "sh", Text: "netctl tenant ls\n"},
		{Language: "sh", Mark: "run: ", Text: "netctl tenant ls\n"},
		{Language: "sh", Mark: "not run: ", Text: "netctl tenant ls\n"},
		{Language: "sh", Mark: "run: netctl", Text: "echo '\n"},
		{Language: "", Text: "what is it\n"},
		{Language: "bash", Text: "netctl tenant ls\n"},
		{Language: "yaml", Text: "a: {\n"},
		{Language: "json", Text: "{a: 1}\n"},
	} {
		if checkBlock(t.Context(), b) == nil {
			t.Errorf("%+v passes", b)
		}
	}
	for _, b := range []pagetest.Block{
		{Language: "sh", Mark: "run: machine1", Text: "netctl tenant ls\n"},
		{Language: "sh", Mark: "not run: it needs a fabric", Text: "netctl tenant ls\n"},
		{Language: "hcl", Mark: "not run: Nomad reads it", Text: "x\n"},
		{Language: "text", Text: "out\n"},
		{Language: "yaml", Text: "a: 1\n---\nb: 2\n"},
		{Language: "json", Text: "{\"a\": 1}\n"},
	} {
		if err := checkBlock(t.Context(), b); err != nil {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// The targets of make that pages name exist.
func TestMakeTargetsOfPages(t *testing.T) {
	makefile := text(t, "Makefile")
	for _, c := range pagetest.Commands(t, "make") {
		for i, arg := range c.Args {
			if strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") || i > 0 && c.Args[i-1] == "-C" {
				continue
			}
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(arg) + `:`).MatchString(makefile) {
				t.Errorf("%s:%d: Makefile has no target %s", c.Page, c.Line, arg)
			}
		}
	}
}

// The values of the chart that pages set exist.
func TestHelmValuesOfPages(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text(t, "packaging/kubernetes/chart/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	set := 0
	for _, c := range pagetest.Commands(t, "helm") {
		for i, arg := range c.Args {
			if i == 0 || c.Args[i-1] != "--set" {
				continue
			}
			set++
			name, _, _ := strings.Cut(arg, "=")
			name, _, _ = strings.Cut(name, "[")
			at := any(values)
			for key := range strings.SplitSeq(name, ".") {
				inner, isMap := at.(map[string]any)
				next, known := inner[key]
				if !known && (!isMap || len(inner) > 0) { // users choose the keys of an empty map
					t.Errorf("%s:%d: the chart has no value %s", c.Page, c.Line, name)
					break
				}
				at = next
			}
		}
	}
	if set < 8 {
		t.Errorf("only %d values were found", set)
	}
}
