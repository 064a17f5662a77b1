package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// Mirror implements store.Store: list at a revision, then one watch from the
// next revision on over the one range that covers all prefixes. One watch sees
// the events of a revision together and revisions in order; several would not,
// and etcd's progress notifications cannot order them either (3.4 lets those
// overtake events).
func (c *Client) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	var l memberLag
	return store.KeepMirror(ctx, prefixes, opts, func(state *store.MirrorState, onState func(error)) (following bool, reason, err error) {
		following, reason, err = (&mirror{client: c, state: state, fn: fn, onState: onState}).follow(ctx)
		return following, l.judge(reason, time.Now()), err
	})
}

// errOlder is why a mirror does not follow a member that is behind what has been listed.
var errOlder = model.Errorf(model.ErrUnavailable, "etcd has older data")

// memberLagGrace is how long a member may be behind: it catches up, or another one is asked.
const memberLagGrace = 2 * time.Second

// memberLag knows since when members have been behind; zero = they are not.
type memberLag struct{ since time.Time }

// judge makes store.ErrSourceChanged of a lag that is a short one.
func (l *memberLag) judge(reason error, now time.Time) error {
	if !errors.Is(reason, errOlder) {
		l.since = time.Time{}
		return reason
	}
	if l.since.IsZero() {
		l.since = now
	}
	if now.Sub(l.since) < memberLagGrace {
		return fmt.Errorf("%w: %w", store.ErrSourceChanged, reason)
	}
	return reason
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
	// Ending the stream's context is what frees it.
	wctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	// The stream belongs to one connection and ends with it. It is opened before
	// the list: over an etcd whose data were replaced in between, a watch from the
	// list's revision on would wait for ever.
	opening, opened := m.client.within(ctx)
	stop := context.AfterFunc(opening, cancel)
	stream, err := m.client.watch.Watch(wctx)
	if !stop() {
		err = context.DeadlineExceeded
	}
	opened()
	if err != nil {
		return m.stopped(ctx, false, err)
	}
	kvs, rev, identity, err := m.list(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return false, nil, ctx.Err()
		}
		return false, err, nil
	}
	if b, deliver := m.state.Relist(kvs, rev, identity); deliver {
		if err := m.fn(b); err != nil {
			return false, nil, err
		}
	}
	from, to := m.state.Span()
	if from == "" {
		from = "\x00"
	}
	watch := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(from), RangeEnd: []byte(endOr(to)), StartRevision: int64(rev) + 1, Fragment: true, WatchId: 1,
	}}}
	_ = stream.Send(watch) // if it fails, Recv tells why
	word, done := m.client.health.watch(stream, watch, cancel)
	defer done()
	var events []*mvccpb.Event // of a response that comes in fragments
	for {
		resp, err := stream.Recv()
		if err == nil {
			word()
			err = m.client.belongs(ctx, resp)
		}
		switch {
		case err != nil:
			return m.stopped(ctx, following, err)
		case following && resp.Created && resp.Canceled:
			continue // the word that was asked for
		case following && resp.Created:
			m.client.health.noWatchCounts.Store(true)
			return following, model.Errorf(model.ErrUnavailable, "the server at %s begins a watch twice", m.client.endpoints), nil
		case resp.CompactRevision != 0:
			return following, fmt.Errorf("revisions before %d: %w", resp.CompactRevision, store.ErrCompacted), nil
		case resp.Canceled:
			return m.stopped(ctx, following, errors.New(resp.CancelReason))
		case resp.Header.Revision < int64(rev):
			return following, fmt.Errorf("%s: %w", m.client.endpoints, errOlder), nil
		case resp.Created:
			following = true
			m.onState(nil)
		}
		if events = append(events, resp.Events...); resp.Fragment {
			continue
		}
		if err := m.deliver(ctx, events); err != nil {
			return following, nil, err
		}
		events = events[:0]
	}
}

// stopped tells why the stream has ended, in follow's terms.
func (m *mirror) stopped(ctx context.Context, following bool, err error) (bool, error, error) {
	if ctx.Err() != nil {
		return following, nil, ctx.Err()
	}
	return following, m.client.failed(ctx, err), nil
}

// list reads the store's identity and all prefixes at one revision.
func (m *mirror) list(ctx context.Context) ([]store.KV, store.Revision, store.KV, error) {
	for {
		var all []store.KV
		first, at, err := m.client.ReadKeys(ctx, 0, []string{store.StoreIdentityKey})
		if err != nil {
			return nil, 0, store.KV{}, err
		}
		for _, prefix := range m.state.Prefixes() {
			var kvs []store.KV
			if kvs, _, err = m.client.ReadRange(ctx, at, prefix, 0); err != nil {
				break
			}
			all = append(all, kvs...)
		}
		if !errors.Is(err, store.ErrCompacted) {
			return all, at, first[0], err
		}
	}
}

// deliver hands on the events of one response, one batch per revision: etcd
// keeps the events of a revision in one response, however many fragments it has.
func (m *mirror) deliver(ctx context.Context, events []*mvccpb.Event) error {
	for len(events) > 0 {
		rev := events[0].Kv.ModRevision
		n := 1
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		kvs := make([]store.KV, n)
		for i, e := range events[:n] {
			kvs[i] = fromEtcd(e.Kv)
			if e.Type == mvccpb.DELETE {
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
