package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/contiv/netplugin/v2/internal/store"
)

// KeepCompacted makes etcd forget, once every interval, what is older than the
// interval, until ctx ends; it returns ctx's error. An etcd that was started
// without --auto-compaction-retention keeps every revision until its quota is
// full, and then refuses writes. Several at once do no harm; the embedded
// server does the like by itself. Mirrors that are further behind re-list.
func (c *Client) KeepCompacted(ctx context.Context, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var last store.Revision
	for {
		_, now, err := c.ReadKeys(ctx, 0, []string{store.CommitKey})
		if err == nil && last > 0 {
			err = c.compact(ctx, last)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.log.Warn("etcd was not compacted, trying again later", "error", err)
		default:
			last = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// compact forgets what is older than a revision.
func (c *Client) compact(ctx context.Context, rev store.Revision) error {
	rctx, cancel := c.within(ctx)
	defer cancel()
	_, err := c.etcd.Compact(rctx, int64(rev))
	if errors.Is(err, rpctypes.ErrCompacted) { // somebody did
		return nil
	}
	return c.failed(ctx, err)
}
