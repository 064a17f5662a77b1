package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMountedStateDirectoryIsCleared: a state directory that is a file system of its own is
// emptied and stays; the socket's directory, which is none, goes.
func TestMountedStateDirectoryIsCleared(t *testing.T) {
	state, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	h, err := TakeIdle(t.Context(), Config{StateDir: state, Socket: filepath.Join(run, "cni.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	removed, err := h.Forget()
	if err != nil || !slices.Contains(removed, run) || slices.Contains(removed, state) {
		t.Errorf("Forget() = %q, %v", removed, err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
