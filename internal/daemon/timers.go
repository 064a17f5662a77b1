package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// timerSlack is how late the kernel may end a timed wait of this process.
const timerSlack = 2 * time.Millisecond

// CoalesceTimers lets the kernel end this process's timed waits up to two
// milliseconds late. Go's runtime looks after its threads every 20 us while
// anything runs; a server that works in short turns spends a quarter of its
// time on that where a timer interrupt is dear, as in virtual machines. A thread
// inherits the setting of the thread that started it. Only root may set it for
// threads other than the caller's; without root nothing changes.
func CoalesceTimers() error {
	for changed := true; changed; { // a thread may start another before its turn comes
		tasks, err := filepath.Glob("/proc/self/task/*")
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		changed = false
		for _, task := range tasks {
			set, err := coalesce(filepath.Base(task))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has ended, or the kernel knows no such setting
				return fmt.Errorf("set the timer slack: %w", err)
			}
			changed = changed || set
		}
	}
	return nil
}

// coalesce sets one thread's slack, unless it has as much already.
func coalesce(thread string) (set bool, err error) {
	file := filepath.Join("/proc", thread, "timerslack_ns")
	b, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	has, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || has >= int64(timerSlack) {
		return false, err
	}
	return true, os.WriteFile(file, strconv.AppendInt(nil, int64(timerSlack), 10), 0)
}
