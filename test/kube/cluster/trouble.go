package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// Pause stops the API server's process where it is: connections stay open, and nothing
// is answered, until Resume. It returns when each of its threads has stopped, which is
// later than the signal; an error is that it has ended, or ctx's.
func (c *Control) Pause(ctx context.Context) error {
	if err := c.server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		stopped, err := c.stopped()
		if stopped || err != nil {
			return err
		}
		if err := waiting.Pause(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// stopped reports whether no thread of the API server runs.
func (c *Control) stopped() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.server.cmd.Process.Pid))
	if err != nil {
		return false, err
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		// The state comes after the name, in brackets, which may have any in it (proc(5)).
		if i := bytes.LastIndexByte(text, ')'); i < 0 || !bytes.HasPrefix(text[i:], []byte(") T")) {
			return false, nil
		}
	}
	return len(threads) > 0, nil
}

// Resume is the end of Pause.
func (c *Control) Resume() error { return c.server.cmd.Process.Signal(syscall.SIGCONT) }

// Stop kills the API server, and returns when it has ended. What it has written stays.
func (c *Control) Stop() error {
	err := c.server.cmd.Process.Kill()
	<-c.server.done
	return err
}

// Restart starts an API server after Stop, at the same address, and returns when it is
// ready. With forget its store is another one, which is empty and counts its resource
// versions from the start, as after a restore of a backup.
func (c *Control) Restart(ctx context.Context, forget bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if forget {
		if err := c.startEtcd(ctx); err != nil {
			return err
		}
	}
	return c.startServer(ctx)
}
