package durable

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// open opens a directory, as another process would.
func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // closed already, where the test unlocked it
	return f
}

// TestLockHasOneHolder: one at a time, and the next right after.
func TestLockHasOneHolder(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, dir), open(t, dir)
	if err := Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := Lock(second); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lock: %v, want %v", err, ErrLocked)
	}
	if err := Unlock(first); err != nil {
		t.Fatal(err)
	}
	if err := Lock(second); err != nil {
		t.Fatalf("after the first was let go: %v", err)
	}
}

// TestUnlockWhileChildStarts: a child between fork and exec holds a copy of the
// descriptor.
func TestUnlockWhileChildStarts(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	if err := Lock(first); err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(first.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(child) }()
	if err := Unlock(first); err != nil {
		t.Fatal(err)
	}
	if err := Lock(open(t, dir)); err != nil {
		t.Fatalf("while a child has a copy: %v", err)
	}
}
