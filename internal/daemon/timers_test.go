package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every thread may be late, those started meanwhile too.
func TestCoalescedTimersCoverLaterThreads(t *testing.T) {
	err := CoalesceTimers()
	if errors.Is(err, fs.ErrPermission) {
		t.Skipf("needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads: %v", err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(filepath.Join("/proc", filepath.Base(task), "timerslack_ns"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if got := strings.TrimSpace(string(b)); err != nil || got != "2000000" {
			t.Errorf("thread %s has a slack of %s ns, %v", filepath.Base(task), got, err)
		}
	}
}
