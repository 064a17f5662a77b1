package membership

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestRestoreBeginsANewGeneration: what a backup of a running server holds is there again, in a new
// epoch and beyond all revisions seen, also when it is restored twice; the former
// data are kept; files that are no backup change nothing.
func TestRestoreBeginsANewGeneration(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	dir := filepath.Join(t.TempDir(), "data")
	run := func(f func(c *etcd.Client)) {
		t.Helper()
		s, err := Start(t.Context(), Config{Dir: dir, Client: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		c := s.Client()
		f(c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	put := func(c *etcd.Client, key string) store.Revision {
		rev, err := c.Update(t.Context(), func(tx store.Tx) error { tx.Put(store.Root+key, []byte("x"), nil); return nil })
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	file := filepath.Join(t.TempDir(), "backup")
	var seen store.Revision
	run(func(c *etcd.Client) {
		if _, err := c.Update(t.Context(), func(tx store.Tx) error {
			if err := tables.Incarnations.Put(tx, store.Incarnation{ID: "a", Generation: 1}); err != nil {
				return err
			}
			return tables.Globals.Put(tx, model.DefaultGlobal())
		}); err != nil {
			t.Fatal(err)
		}
		put(c, "service/x")
		put(c, "access/tokens/X")
		put(c, "join/token/Y")
		put(c, "state/before")
		r, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		seen = put(c, "state/after")
	})
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	bad := filepath.Join(t.TempDir(), "bad")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{"nothing": nil, "text": []byte("hello, world"), "a torn file": whole[:len(whole)/2], "a damaged one": append(append([]byte{}, whole[:9000]...), append([]byte("damage"), whole[9006:]...)...)} {
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), RestoreConfig{File: bad, DataDir: dir, Logger: quiet, Now: now}); err == nil {
			t.Errorf("%s was restored", what)
		}
	}
	epoch := int64(1)
	for try := range 2 {
		now = now.Add(time.Hour)
		r, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: dir, Logger: quiet, Now: now, KeepTokens: try == 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.Tokens != 1-try {
			t.Errorf("restore %d says that %d tokens have ended", try, r.Tokens)
		}
		if r.ID != "a" || r.Generation <= epoch || r.Revision <= seen || r.Kept == "" || !strings.HasPrefix(r.Since, "2026-11-22") {
			t.Errorf("restore %d: %+v, after epoch %d and revision %d", try, r, epoch, seen)
		}
		epoch, seen = r.Generation, r.Revision
		if _, err := os.Stat(r.Kept); err != nil {
			t.Error(err)
		}
		run(func(c *etcd.Client) {
			for key, want := range map[string]bool{"state/before": true, "state/after": false, "service/x": false, "access/tokens/X": try == 1, "join/token/Y": false} {
				if kv, err := c.Get(t.Context(), store.Root+key); err != nil || kv.Exists() != want {
					t.Errorf("%s: %+v, %v, want there %v", key, kv, err, want)
				}
			}
			if rev := put(c, "state/after"); rev <= seen {
				t.Errorf("revision %d after %d", rev, seen)
			} else {
				seen = rev
			}
		})
	}
}

// TestRestoreSendsNoRequests: restoring a backup of several members whose authorities were
// renewed sends no request to them, and reports none of their authorities.
func TestRestoreSendsNoRequests(t *testing.T) {
	t.Parallel()
	bCfg := secured(t, 112, "b")
	a, b := pair(t, secured(t, 111, "a"), &bCfg)
	if err := a.Authorities.RenewAuthorities(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := backedUp(t, a)
	closed(t, b)
	closed(t, a)
	var log bytes.Buffer
	if _, err := Restore(t.Context(), RestoreConfig{File: file, DataDir: filepath.Join(t.TempDir(), "data"), Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "authority") {
		t.Errorf("it said %s", &log)
	}
}

// The error names a missing backup, even if another process uses the directory.
func TestMissingBackupIsNamedFirst(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = durable.Unlock(lock) }() // the directory goes with the test
	if _, err := Restore(t.Context(), RestoreConfig{File: filepath.Join(dir, "nosuch"), DataDir: dir}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
