package hostchanges

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func open(dir string) *History { return Open(dir, slog.New(slog.DiscardHandler)) }

// TestChangeSinceTheQuestionStays: an answer says nothing of what was changed after it was
// asked for.
func TestChangeSinceTheQuestionStays(t *testing.T) {
	h := open(t.TempDir())
	h.Note(Infra, "blue:a")
	mark := h.Mark()
	h.Note(Infra, "blue:b")
	h.Answered(mark, nil)
	if c, _ := h.Newest(); !slices.Equal(c.Objects, []string{"blue:b"}) {
		t.Errorf("the newest change: %v", c)
	}
	h.Answered(h.Mark(), nil)
	if c, is := h.Newest(); is {
		t.Errorf("after an answer there is %v", c)
	}
}

// TestHistoryIsTheSameAfterARestart: with numbers that go on, and in a file of bounded size.
func TestHistoryIsTheSameAfterARestart(t *testing.T) {
	dir := t.TempDir()
	h := open(dir)
	path := map[netip.Addr]string{netip.MustParseAddr("10.9.0.1"): "dev eth0"}
	h.Answered(h.Mark(), path)
	var many []string
	for i := range maxObjects {
		many = append(many, fmt.Sprintf("fd00:1234:5678:9abc:def0:1234:5678:%x/128", i))
	}
	h.Note(Learned, "10.1.0.0/16")
	h.Note(Routes, many...)
	c, _ := h.Newest()
	h.Set(c.Number, Reverting)
	h.Save()
	again := open(dir)
	if got, is := again.PendingRevert(); !is || got.Number != c.Number || len(again.SuspendedRoutes(Routes)) != maxObjects || len(again.Path()) != 1 {
		t.Errorf("unconfirmed: %v, change %d, want %d", is, got.Number, c.Number)
	}
	if c, is := again.Newest(); is {
		t.Errorf("the file has more than %d objects: %v", maxObjects, c)
	}
	again.Note(Mode, "bridge")
	if next, _ := again.Newest(); next.Number <= c.Number {
		t.Errorf("change %d follows %d", next.Number, c.Number)
	}
}

// TestUnusableFileIsIgnored: nothing is rolled back by a file that netplugin did not write.
func TestUnusableFileIsIgnored(t *testing.T) {
	change := func(rest string) string { return `{"version":1,"changes":[{"number":1,` + rest + `}]}` }
	for _, text := range []string{
		"", "{", `{"version":2}`, `{"version":1,"more":1}`, `{"version":1,"path":{"10.9.0.1":"dev eth0"}} {}`,
		change(`"kind":"rules","objects":["10.0.0.0/8"],"state":"trial"`), change(`"kind":"infra","objects":["a/../b"],"state":"trial"`),
		change(`"kind":"infra","objects":["a:../b"],"state":"trial"`), change(`"kind":"routes","objects":["10.0.0.0"],"state":"trial"`),
		change(`"kind":"mode","objects":["other"],"state":"trial"`), change(`"kind":"routes","objects":[],"state":"trial"`),
		change(`"kind":"routes","objects":["10.0.0.0/8"],"state":"gone"`), `{"version":1,"path":{"` + strings.Repeat("a", maxFile) + `":""}}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, File), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := open(dir)
		if c, is := h.PendingRevert(); is || h.Path() != nil {
			t.Errorf("%.100q: %v", text, c)
		}
	}
}
