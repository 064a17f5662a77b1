package relay

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// idleConn is a connection that knows whether its reader waits for what the other end says.
type idleConn struct {
	io.ReadWriteCloser
	reads   atomic.Int64 // that returned
	waiting atomic.Bool
}

// Read implements io.Reader.
func (c *idleConn) Read(b []byte) (int, error) {
	c.waiting.Store(true)
	n, err := c.ReadWriteCloser.Read(b)
	c.waiting.Store(false)
	c.reads.Add(1)
	return n, err
}

// ticks is in how many parts silence is measured.
const ticks = 12

// awaitNoHeartbeat returns nil once the other end has said nothing for as long as patience lasts, or
// ctx's error. Time in which this process did not run, or its reader was busy, is no silence
// of the other end's.
func (c *idleConn) awaitNoHeartbeat(ctx context.Context, patience time.Duration) error {
	every := patience / ticks
	tick := time.NewTicker(every)
	defer tick.Stop()
	reads, quiet, last := c.reads.Load(), 0, time.Now()
	for quiet < ticks {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		now, seen := time.Now(), c.reads.Load()
		switch {
		case seen != reads || !c.waiting.Load():
			reads, quiet = seen, 0
		case now.Sub(last) < 2*every:
			quiet++
		}
		last = now
	}
	return nil
}
