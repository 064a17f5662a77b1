package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

func leaseID(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// parseLease reads what leaseID wrote; "" is none.
func parseLease(id string) (clientv3.LeaseID, error) {
	if id == "" {
		return clientv3.NoLease, nil
	}
	n, err := strconv.ParseInt(id, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("session %q is not a session of etcd", id)
	}
	return clientv3.LeaseID(n), nil
}

// GrantLease implements store.Backend. etcd counts whole seconds, rounded up.
func (c *Client) GrantLease(ctx context.Context, ttl time.Duration) (string, error) {
	granted, err := c.grant(ctx, ttl)
	if err != nil {
		return leaseID(0), err
	}
	return leaseID(granted.ID), nil
}

func (c *Client) grant(ctx context.Context, ttl time.Duration) (*clientv3.LeaseGrantResponse, error) {
	resp, err := request(ctx, c, store.OpLease, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return c.etcd.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	return resp, nil
}

// NewSession implements store.Store.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if ttl <= 0 {
		return nil, model.Errorf(model.ErrInvalid, "session: ttl %s must be positive", ttl)
	}
	begin := time.Now()
	granted, err := c.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	kctx, cancel := context.WithCancel(ctx)
	gone := context.AfterFunc(c.etcd.Ctx(), cancel) // the client is closed
	s := &session{client: c, id: granted.ID, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer cancel()
		defer gone()
		s.keep(kctx, begin, granted.TTL)
	}()
	return s, nil
}

// Refreshing a lease. Each is a request of its own, which goes to the next server: the
// stream that etcd's client keeps for all would stay with one that stands still.
const (
	refreshes          = 3                      // in the lease's time
	maxRefreshInterval = askTimeout             // that one may take, and half of what is left of the lease,
	minRefreshInterval = 500 * time.Millisecond // but no less than this
	refreshRetry       = 250 * time.Millisecond // after one that failed
)

// keep refreshes the lease until ctx ends, or the lease has: it lasts for seconds from
// when what confirmed it was asked.
func (s *session) keep(ctx context.Context, asked time.Time, seconds int64) {
	ttl := time.Duration(seconds) * time.Second
	until := asked.Add(ttl)
	timer := time.NewTimer(ttl / refreshes)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked := time.Now()
		left := until.Sub(asked)
		rctx, cancel := context.WithTimeout(ctx, min(left, maxRefreshInterval, max(left/2, minRefreshInterval)))
		kept, err := request(rctx, s.client, store.OpLease, func(ctx context.Context) (*clientv3.LeaseKeepAliveResponse, error) {
			return s.client.etcd.KeepAliveOnce(ctx, s.id)
		})
		cancel()
		switch now := time.Now(); {
		case err == nil:
			ttl = time.Duration(kept.TTL) * time.Second
			until = asked.Add(ttl)
			timer.Reset(ttl / refreshes)
		case errors.Is(err, rpctypes.ErrLeaseNotFound), !now.Before(until):
			return
		default:
			timer.Reset(min(refreshRetry, until.Sub(now)))
		}
	}
}

type session struct {
	client *Client
	id     clientv3.LeaseID
	cancel context.CancelFunc
	done   chan struct{}

	once sync.Once
	err  error
}

func (s *session) ID() string            { return leaseID(s.id) }
func (s *session) Done() <-chan struct{} { return s.done }

// Close revokes the lease. It is called after the holder's context has ended,
// too, so it takes a time-out of its own.
func (s *session) Close() error {
	s.once.Do(func() {
		s.cancel()
		<-s.done
		ctx := context.Background()
		_, err := request(ctx, s.client, store.OpLease, func(ctx context.Context) (*clientv3.LeaseRevokeResponse, error) {
			return s.client.etcd.Revoke(ctx, s.id)
		})
		if err = s.client.failed(ctx, err); err != nil && err != store.ErrSessionLost { //nolint:errorlint // never wrapped
			s.err = fmt.Errorf("close session: %w", err)
		}
	})
	return s.err
}
