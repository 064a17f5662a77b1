package etcd

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/store"
)

var _ store.Snapshotter = (*Client)(nil)

// Snapshot implements store.Snapshotter: etcd's own format, with its hash at the
// end, as etcdutl reads it.
func (c *Client) Snapshot(ctx context.Context) (store.Snapshot, error) {
	r, err := c.etcd.Snapshot(ctx)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return r, nil
}
