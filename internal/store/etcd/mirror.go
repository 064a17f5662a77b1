package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Mirror implements store.Store: list at a revision, then one watch from the
// next revision on over the one range that covers all prefixes. One watch sees
// the events of a revision together and revisions in order; several would not,
// and etcd's progress notifications cannot order them either (3.4 lets those
// overtake events).
func (c *Client) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	var o store.MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.OnState == nil {
		o.OnState = func(error) {}
	}
	m := &mirror{client: c, state: store.NewMirrorState(prefixes, o.Commits), fn: fn, onState: o.OnState}
	for failures := 0; ; failures++ {
		following, reason, err := m.follow(ctx)
		if err != nil {
			return err
		}
		if following {
			failures = 0
		}
		o.OnState(reason)
		timer := time.NewTimer(mirrorBackOff(failures))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// mirrorBackOff grows from some 25 ms to some 2 s.
func mirrorBackOff(failures int) time.Duration {
	d := 25 * time.Millisecond << min(failures, 6)
	return d + rand.N(d/2)
}

type mirror struct {
	client  *Client
	state   *store.MirrorState
	fn      func(store.Batch) error
	onState func(error)
}

// follow lists and watches until there is a gap, whose reason it returns; err
// is what ends the mirror. following tells whether the watch had begun.
func (m *mirror) follow(ctx context.Context) (following bool, reason, err error) {
	// Ending the watch's context is what frees it in the client.
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	// Observed from before the list on: list and watch may meet different servers.
	connection, ended := m.client.watchConnection(wctx)
	defer func() {
		cancel()
		<-ended
	}()
	kvs, rev, err := m.list(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return false, nil, ctx.Err()
		}
		return false, err, nil
	}
	if b, deliver := m.state.Relist(kvs, rev); deliver {
		if err := m.fn(b); err != nil {
			return false, nil, err
		}
	}
	from, to := m.state.Span()
	if from == "" {
		from = "\x00"
	}
	events := m.client.etcd.Watch(wctx, from,
		clientv3.WithRange(endOr(to)), clientv3.WithRev(int64(rev)+1),
		clientv3.WithFragment(), clientv3.WithCreatedNotify())
	connected := true
	for {
		select {
		case <-ctx.Done():
			return following, nil, ctx.Err()
		case up := <-connection:
			if !up {
				connected = false
				m.onState(model.Errorf(model.ErrUnavailable, "the connection to etcd at %s is lost", m.client.endpoints))
				continue
			}
			if !connected {
				// The client resumes the watch by itself, but over an etcd whose
				// data are others, or older, it would wait for ever.
				return following, model.Errorf(model.ErrUnavailable, "etcd at %s is back", m.client.endpoints), nil
			}
		case resp, ok := <-events:
			if !ok {
				return following, model.Errorf(model.ErrUnavailable, "etcd at %s ended the watch", m.client.endpoints), nil
			}
			if err := resp.Err(); err != nil {
				return following, m.gap(resp, err), nil
			}
			if resp.Header.Revision < int64(rev) {
				return following, model.Errorf(model.ErrUnavailable, "etcd at %s has older data", m.client.endpoints), nil
			}
			if resp.Created {
				following = true
				m.onState(nil)
			}
			if err := m.deliver(ctx, resp.Events); err != nil {
				return following, nil, err
			}
		}
	}
}

func (m *mirror) gap(resp clientv3.WatchResponse, err error) error {
	if resp.CompactRevision != 0 {
		return fmt.Errorf("revisions before %d: %w", resp.CompactRevision, store.ErrCompacted)
	}
	return model.Errorf(model.ErrUnavailable, "etcd at %s ended the watch: %w", m.client.endpoints, err)
}

// list reads all prefixes at one revision.
func (m *mirror) list(ctx context.Context) ([]store.KV, store.Revision, error) {
	for {
		var all []store.KV
		var at store.Revision
		var err error
		for _, prefix := range m.state.Prefixes() {
			var kvs []store.KV
			if kvs, at, err = m.client.ReadRange(ctx, at, prefix, 0); err != nil {
				break
			}
			all = append(all, kvs...)
		}
		if at == 0 && err == nil { // no prefixes: only commits
			_, at, err = m.client.ReadKeys(ctx, 0, []string{store.CommitKey})
		}
		if !errors.Is(err, store.ErrCompacted) {
			return all, at, err
		}
	}
}

// deliver hands on the events of one response, one batch per revision: etcd
// keeps the events of a revision in one response (the client joins fragments).
func (m *mirror) deliver(ctx context.Context, events []*clientv3.Event) error {
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		kvs := make([]store.KV, n)
		for i, e := range events[:n] {
			kvs[i] = fromEtcd(e.Kv)
			if e.Type == clientv3.EventTypeDelete {
				kvs[i].Create, kvs[i].Value = 0, nil
			}
		}
		events = events[n:]
		b, deliver := m.state.Commit(kvs, store.Revision(rev))
		if !deliver {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.fn(b); err != nil {
			return err
		}
	}
	return nil
}

// watchConnection tells each loss (false) and return (true) of the connection,
// once it has been there, until ctx ends; then it closes ended.
func (c *Client) watchConnection(ctx context.Context) (changes <-chan bool, ended <-chan struct{}) {
	tell, done := make(chan bool), make(chan struct{})
	go func() {
		defer close(done)
		conn := c.etcd.ActiveConnection()
		if conn == nil { // inside the server's process
			return
		}
		for up, was := true, false; ; {
			s := conn.GetState()
			was = was || s == connectivity.Ready
			if s == connectivity.Idle {
				conn.Connect()
			}
			if now := s == connectivity.Ready; was && now != up {
				up = now
				select {
				case tell <- up:
				case <-ctx.Done():
					return
				}
			}
			if s == connectivity.Shutdown || !conn.WaitForStateChange(ctx, s) {
				return
			}
			if s == connectivity.Ready && conn.GetState() == connectivity.Ready {
				// Lost and back between two looks.
				select {
				case tell <- false:
				case <-ctx.Done():
					return
				}
				up = false
			}
		}
	}()
	return tell, done
}
