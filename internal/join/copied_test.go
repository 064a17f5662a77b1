package join

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestCopied: a copy of a member's directory does not start under other addresses while
// the member lives, and leaves it alone; when it lives no more, the copy is the member,
// which has moved.
func TestCopied(t *testing.T) {
	cfg := func(name, dir string) Config {
		c := config(t, 1, name)
		c.Dir, c.Client, c.Peer, c.Door = dir, storetest.FreePort(t), storetest.FreePort(t), storetest.FreePort(t)
		return c
	}
	mine := cfg("a", filepath.Join(t.TempDir(), "a"))
	first, err := Start(t.Context(), mine)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	copied := cfg("a", filepath.Join(t.TempDir(), "copy"))
	if err := os.CopyFS(copied.Dir, os.DirFS(mine.Dir)); err != nil {
		t.Fatal(err)
	}

	if first, err = Start(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	m, err := Start(t.Context(), copied)
	if err == nil {
		closed(t, m)
	}
	is(t, "a copy beside the member", err, model.ErrConflict, "the member a is alive at "+mine.Peer, "a copy of its data directory", "--member-name")
	if _, err := first.List(t.Context()); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	closed(t, first)

	// Somebody else has the address now.
	other := cfg("b", filepath.Join(t.TempDir(), "b"))
	other.Peer = mine.Peer
	start(t, other)
	start(t, copied)
}
