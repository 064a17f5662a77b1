package etcd

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

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
		return 0, fmt.Errorf("session %q is not one of etcd", id)
	}
	return clientv3.LeaseID(n), nil
}

// GrantLease implements store.Backend. etcd counts whole seconds, rounded up.
func (c *Client) GrantLease(ctx context.Context, ttl time.Duration) (string, error) {
	id, err := c.grant(ctx, ttl)
	return leaseID(id), err
}

func (c *Client) grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	resp, err := request(ctx, c, store.OpLease, func(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
		return c.etcd.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return 0, c.failed(ctx, err)
	}
	return resp.ID, nil
}

// NewSession implements store.Store.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if ttl <= 0 {
		return nil, model.Errorf(model.ErrInvalid, "session: ttl %s must be positive", ttl)
	}
	id, err := c.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	kctx, cancel := context.WithCancel(ctx)
	alive, err := c.etcd.KeepAlive(kctx, id)
	if err != nil {
		cancel()
		return nil, c.failed(ctx, err)
	}
	s := &session{client: c, id: id, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer cancel()
		for range alive {
			// Each message is a refresh; the end of them is the end of the lease.
		}
	}()
	return s, nil
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
