package tutorial

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

var (
	blockRE      = regexp.MustCompile("(?s)<!-- run: (\\w+) -->\n```sh\n(.*?)```")
	namespaceRE  = regexp.MustCompile(`ip netns add (\S+)`)
	absoluteRE   = regexp.MustCompile(`\brm\b.* /`)
	fromReaderRE = regexp.MustCompile(`(?m)^(\w+=)\S*\.\.\.$`)
	invertedRE   = regexp.MustCompile(`(?m)^! (.*)$`)
)

// block is a runnable code block of a page.
type block struct {
	page, where string // both, machine1, machine2, ...
	text        string
}

// Follow runs the code blocks of pages, whose names are relative to the module: each on the
// machine that it names. Blocks of cleanup1 run on the first machine after all pages.
// The addresses M1, M2, ... and the directory DATA are the machines'. A value that a page
// leaves to the reader ("TOKEN=contiv-join-...") is the last line that the block before has printed.
func Follow(t *testing.T, shells []*Shell, pages ...string) {
	t.Helper()
	last := "" // what the block before printed
	for _, b := range blocks(t, pages) {
		for _, m := range namespaceRE.FindAllStringSubmatch(b.text, -1) {
			t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "ip", "netns", "del", m[1]).Run() })
		}
		script := strings.TrimPrefix(b.text, "make build\n") // the programs are built
		for i, s := range shells {
			script = setTo(script, fmt.Sprintf("M%d=", i+1), s.host.Address.String())
		}
		script = fromReaderRE.ReplaceAllString(script, "${1}"+strings.ReplaceAll(lastLine(last), "$", "$$"))
		ran := false
		for i, s := range shells {
			if b.where == "both" || b.where == fmt.Sprintf("machine%d", i+1) {
				last, ran = s.Run(t, setTo(script, "DATA=", s.data())), true
			}
		}
		if !ran {
			t.Errorf("%s: no machine is called %s", b.page, b.where)
		}
	}
}

// lastLine is the last line that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// blocks returns the runnable blocks of pages, those of clean-ups last.
func blocks(t *testing.T, pages []string) []block {
	t.Helper()
	root, err := testcluster.Root(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	var all, cleanups []block
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		found := blockRE.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Fatalf("%s has no runnable blocks", page)
		}
		for _, m := range found {
			if absoluteRE.MatchString(m[2]) {
				t.Fatalf("%s removes what may be the machine's:\n%s", page, m[2])
			}
			if machine, ok := strings.CutPrefix(m[1], "cleanup"); ok {
				cleanups = append(cleanups, block{page, "machine" + machine, m[2]})
			} else {
				all = append(all, block{page, m[1], m[2]})
			}
		}
	}
	return append(all, cleanups...)
}

// setTo replaces the value of a shell variable where it begins as given, "NAME=BEGINNING".
func setTo(script, begins, value string) string {
	name, _, _ := strings.Cut(begins, "=")
	return regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(begins)+`\S*$`).ReplaceAllLiteralString(script, name+"="+value)
}
