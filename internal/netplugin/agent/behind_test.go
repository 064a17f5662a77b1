package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// gatedReader is a store whose mirror of one prefix delivers nothing while gate is not nil.
type gatedReader struct {
	store.Mirrorer
	prefix string
	gate   atomic.Pointer[chan struct{}]
}

func (h *gatedReader) Mirror(ctx context.Context, prefixes []string, deliver func(store.Batch) error, opts ...store.MirrorOption) error {
	return h.Mirrorer.Mirror(ctx, prefixes, func(b store.Batch) error {
		if gate := h.gate.Load(); gate != nil && slices.Contains(prefixes, h.prefix) {
			select {
			case <-*gate:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return deliver(b)
	}, opts...)
}

// TestAttachWaitsForItsMirrors: an Attach waits for each of the mirrors that policies come by, the
// tenant's, the one of its network's endpoints and the one of namespaces, up to the
// revision that netmaster names. Then it fails with the lagging one, and leaves nothing.
// The answer names the revision.
func TestAttachWaitsForItsMirrors(t *testing.T) {
	for prefix, lags := range map[string]string{
		tables.GlobalPrefix: "of namespaces and settings", tables.TenantRest("blue")[0]: "of tenant blue",
		tables.EndpointsOf(model.NetworkKey{Tenant: "blue", Name: "net1"}): "of the endpoints of network blue:net1",
	} {
		t.Run(prefix, func(t *testing.T) {
			var h *gatedReader
			b := newBed(t, func(c *Config) {
				h = &gatedReader{Mirrorer: c.Store, prefix: prefix}
				c.Store, c.AttachTimeout = h, 3*time.Second
			})
			b.ready()
			r := request("c1", newSandbox(t))
			first := request("c0", newSandbox(t)) // the tenant is followed
			if _, err := b.client().Attach(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			gate := make(chan struct{})
			h.gate.Store(&gate)
			rev := b.put(func(tx store.Tx) error {
				return errors.Join(
					tables.Namespaces.Put(tx, model.Namespace{Name: "shop", Labels: map[string]string{"team": "red"}}),
					tables.Groups.Put(tx, model.Group{Key: model.GroupKey{Tenant: "blue", Name: "later"}}))
			})
			b.master.global.Store(int64(rev))
			b.master.written.Store(int64(rev))
			if _, err := b.client().Attach(t.Context(), r); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), lags) {
				t.Errorf("the mirror of %s is behind: %v, want that it is unavailable, with %q", prefix, err, lags)
			}
			h.gate.Store(nil)
			close(gate)
			b.eventually("the mirror has caught up", func() error {
				res, err := b.client().Attach(t.Context(), r)
				if err == nil && (res.PolicyRevision < int64(rev) || res.PolicyRevision > res.Revision) {
					t.Errorf("policies as of revision %d, of an endpoint of %d, after a namespace of %d", res.PolicyRevision, res.Revision, rev)
				}
				return err
			})
			for _, r := range []attach.Request{first, r} {
				if err := b.client().Detach(t.Context(), attach.DetachRequest{Key: r.Key}); err != nil {
					t.Error(err)
				}
			}
			b.nothingLeft()
		})
	}
}
