package ovstest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// daemon is a process that ends with the one that runs the tests, also when that is killed
// or ends itself, as it does after -timeout.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it was waited for
}

func start(cmd *exec.Cmd) (*daemon, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d, started := &daemon{cmd, make(chan struct{})}, make(chan error)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread that forked ends
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
		close(d.done)
	}()
	return d, <-started
}

func (d *daemon) end() {
	if d == nil {
		return
	}
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.done
}

// ours are the namespaces and directories of a test process, by its number.
var ours = regexp.MustCompile(`^O(?:ovs)?([0-9]+)-`)

var sweepOnce = sync.OnceFunc(sweep)

// sweep removes what processes of tests that were killed have left: namespaces, with the
// interfaces in them, and directories.
func sweep() {
	dead := func(path string) bool {
		m := ours.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			return false
		}
		pid, err := strconv.Atoi(m[1])
		return err == nil && syscall.Kill(pid, 0) == syscall.ESRCH
	}
	spaces, _ := filepath.Glob("/run/netns/O*") // of a pattern that is right
	for _, path := range spaces {
		if dead(path) {
			_ = exec.CommandContext(context.Background(), "ip", "netns", "del", filepath.Base(path)).Run() // the next process tries again
		}
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "Oovs*"))
	for _, path := range dirs {
		if dead(path) {
			_ = os.RemoveAll(path)
		}
	}
}
