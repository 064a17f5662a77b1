package cluster

import (
	"context"
	"syscall"
)

// Pause stops the API server's process where it is: connections stay open, and nothing
// is answered, until Resume. The error is that it has ended.
func (c *Control) Pause() error { return c.server.cmd.Process.Signal(syscall.SIGSTOP) }

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
