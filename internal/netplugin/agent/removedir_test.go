package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEmptyDirectoriesAreRemoved: an empty directory goes; one that a pod has of its node, below files
// that cannot change, is left and is no trouble; one that holds something is.
func TestEmptyDirectoriesAreRemoved(t *testing.T) {
	done := make(chan string)
	dir := t.TempDir()
	go func() {
		runtime.LockOSThread() // it ends with the goroutine, and its mounts with it
		defer close(done)
		if unix.Unshare(unix.CLONE_NEWNS) != nil || unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil || unix.Mount("tmpfs", dir, "tmpfs", 0, "") != nil {
			done <- "needs root"
			return
		}
		inner, full, free := filepath.Join(dir, "inner"), filepath.Join(dir, "full"), filepath.Join(dir, "free")
		for _, d := range []string{inner, filepath.Join(full, "a"), free} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Error(err)
			}
		}
		if err := unix.Mount("tmpfs", inner, "tmpfs", 0, ""); err != nil {
			t.Error(err)
		}
		if err := removeDir(free); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(free); !os.IsNotExist(err) {
			t.Errorf("an empty directory is left: %v", err)
		}
		if err := removeDir(full); err == nil {
			t.Error("a directory that holds something was no trouble")
		}
		for _, flags := range []uintptr{0, unix.MS_REMOUNT | unix.MS_RDONLY} {
			if flags != 0 {
				if err := unix.Mount("", dir, "", flags, ""); err != nil {
					t.Error(err)
				}
			}
			if err := removeDir(inner); err != nil {
				t.Errorf("a directory of the node's: %v", err)
			}
		}
	}()
	if why := <-done; why != "" {
		t.Skip(why)
	}
}
