package membership

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

// TestCopiedDirectoryDoesNotStart: a copy of a member's directory does not start under other addresses while
// the member lives, and leaves it alone; when it lives no more, the copy is the member,
// which has moved.
func TestCopiedDirectoryDoesNotStart(t *testing.T) {
	cfg := func(name, dir string) Config {
		c := config(t, 1, name)
		c.Dir, c.Client, c.Peer, c.EnrollmentAddress = dir, storetest.FreePort(t), storetest.FreePort(t), storetest.FreePort(t)
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
	if _, err := first.Roster.List(t.Context()); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	closed(t, first)

	// Somebody else has the address now.
	other := cfg("b", filepath.Join(t.TempDir(), "b"))
	other.Peer = mine.Peer
	start(t, other)
	start(t, copied)
}

// TestSecureMemberRefusesToStartPlain: a member that required TLS does not start without --secure. A
// member that accepted both does.
func TestSecureMemberRefusesToStartPlain(t *testing.T) {
	cfg := config(t, 1, "a")
	cfg.Client, cfg.Peer, cfg.EnrollmentAddress = storetest.FreePort(t), storetest.FreePort(t), storetest.FreePort(t)
	plain, secure, both := cfg, cfg, cfg
	secure.Secure = []string{"127.0.0.1"}
	both.Secure, both.Plain = secure.Secure, []string{cfg.Client}
	run := func(what string, cfg Config) {
		t.Helper()
		m, err := Start(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		closed(t, m)
	}
	run("secure", secure)
	m, err := Start(t.Context(), plain)
	if err == nil {
		closed(t, m)
	}
	is(t, "without --secure", err, model.ErrConflict, cfg.Dir, "start netmaster with --secure", "--accept-plain before")
	run("secure again", secure)
	run("both", both)
	run("plain after both", plain)
	run("secure after plain", secure)
}

// TestOlderDirectoryIsReported: what is said where etcd has forgotten what it answered for.
func TestOlderDirectoryIsReported(t *testing.T) {
	cfg := config(t, 1, "a")
	m, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, m)
	older := errors.New("tocommit(507) is out of range [lastIndex(405)]. Was the raft log corrupted, truncated, or lost?")
	for why, want := range map[error]string{older: "'netctl cluster remove a'", errors.New("write: input/output error"): "is writable", nil: "is writable"} {
		if got := m.dir.advice(why); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q in it", why, got, want)
		}
	}
}
