package consul

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// A lease is a key that its holder writes again and again (its beat), and a mark for each
// key put with it. A client that sees no beat for the lease's time, by its own clock, may
// end it: it deletes the keys, in a commit like any other, if there still was no beat. The
// holder's clock starts before it writes its beat and a watcher's clock after, so the
// holder learns of the end first.
const (
	leases     = ownPrefix + "lease/"
	leaseShift = 40 // bits of a key's flags that are not its lease's
	leaseBits  = 64 - leaseShift
)

// How often leases are looked at, and how often one is refreshed in its time.
const (
	reapEvery        = 250 * time.Millisecond
	heartbeatsPerTTL = 4
)

func leaseDir(lease uint64) string               { return fmt.Sprintf("%s%06x/", leases, lease) }
func heartbeatKey(lease uint64) string           { return leaseDir(lease) + "beat" }
func markKey(lease uint64, theirs string) string { return leaseDir(lease) + "key/" + theirs }

// parseLease reads what leaseID wrote; "" is none, 0.
func parseLease(id string) (uint64, error) {
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(id, 16, leaseBits)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("session %q is not a session of Consul's store", id)
	}
	return n, nil
}

func leaseID(lease uint64) string { return strconv.FormatUint(lease, 16) }

// heartbeat is the value of a beat.
type heartbeat struct {
	TTL time.Duration `json:"ttl"` // nanoseconds
	N   uint64        `json:"n"`   // counts beats: an equal value would be no write
}

// GrantLease implements store.Backend.
func (c *Client) GrantLease(ctx context.Context, ttl time.Duration) (string, error) {
	lease, _, err := c.grant(ctx, ttl)
	return leaseID(lease), err
}

func (c *Client) grant(ctx context.Context, ttl time.Duration) (lease uint64, mod store.Revision, err error) {
	for {
		lease = 1 + rand.Uint64N(1<<leaseBits-1)
		if mod, err = c.writeHeartbeat(ctx, lease, 0, heartbeat{TTL: ttl}); err != nil || mod != 0 {
			return lease, mod, err
		}
	}
}

// writeHeartbeat writes a beat over the one before; 0 = that is not there any more.
func (c *Client) writeHeartbeat(ctx context.Context, lease uint64, before store.Revision, b heartbeat) (store.Revision, error) {
	text, err := json.Marshal(b)
	if err != nil {
		return 0, err
	}
	done, err := c.transact(ctx, store.OpLease, api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: heartbeatKey(lease), Value: text, Index: uint64(before)}}})
	if err != nil || len(done.Errors) > 0 {
		return 0, err
	}
	return store.Revision(done.Results[0].KV.ModifyIndex), nil
}

// NewSession implements store.Store.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if ttl <= 0 {
		return nil, model.Errorf(model.ErrInvalid, "session: ttl %s must be positive", ttl)
	}
	began := time.Now()
	lease, mod, err := c.grant(ctx, ttl)
	if err != nil {
		return nil, err
	}
	kctx, cancel := context.WithCancel(ctx)
	s := &session{client: c, lease: lease, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		defer cancel()
		s.keep(kctx, ttl, began, mod)
	}()
	return s, nil
}

type session struct {
	client *Client
	lease  uint64
	cancel context.CancelFunc
	done   chan struct{}

	once sync.Once
	err  error
}

func (s *session) ID() string            { return leaseID(s.lease) }
func (s *session) Done() <-chan struct{} { return s.done }

// keep refreshes the lease until it is lost or ctx ends.
func (s *session) keep(ctx context.Context, ttl time.Duration, began time.Time, mod store.Revision) {
	pause := ttl / heartbeatsPerTTL
	for n := uint64(1); ; n++ {
		if err := waiting.Pause(ctx, pause); err != nil {
			return
		}
		begin := time.Now()
		left := began.Add(ttl).Sub(begin)
		if left <= 0 {
			return
		}
		bctx, cancel := context.WithTimeout(ctx, left)
		next, err := s.client.writeHeartbeat(bctx, s.lease, mod, heartbeat{TTL: ttl, N: n})
		cancel()
		switch {
		case err != nil:
			// It may have been written all the same: then the next one fails, unless this is known.
			if seen, ok := s.ownsHeartbeat(ctx, left, n); ok {
				began, mod = begin, seen
			}
			pause = min(ttl/(4*heartbeatsPerTTL), left)
		case next == 0:
			return
		default:
			began, mod, pause = begin, next, ttl/heartbeatsPerTTL
		}
	}
}

// ownsHeartbeat looks whether beat n was written, which had no answer.
func (s *session) ownsHeartbeat(ctx context.Context, within time.Duration, n uint64) (store.Revision, bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	v, err := s.client.read(ctx, []string{heartbeatKey(s.lease)}, nil)
	if err != nil || v.pairs[heartbeatKey(s.lease)] == nil {
		return 0, false
	}
	p := v.pairs[heartbeatKey(s.lease)]
	var b heartbeat
	if json.Unmarshal(p.Value, &b) != nil || b.N != n {
		return 0, false
	}
	return store.Revision(p.ModifyIndex), true
}

// Close ends the lease. It is called after the holder's context has ended, too, so
// it takes a time-out of its own.
func (s *session) Close() error {
	s.once.Do(func() {
		s.cancel()
		<-s.done
		ctx, cancel := context.WithTimeout(context.Background(), s.client.timeout)
		defer cancel()
		for {
			ended, err := s.client.expire(ctx, s.lease, 0)
			if err != nil {
				s.err = fmt.Errorf("close session: %w", err)
			}
			if ended || err != nil {
				return
			}
		}
	})
	return s.err
}

// expire ends a lease and deletes the keys that were put with it last. It does
// nothing, and says so, when there was another beat than the given one, if one is, or
// when others commit in between.
func (c *Client) expire(ctx context.Context, lease uint64, seen store.Revision) (ended bool, err error) {
	for {
		v, err := c.read(ctx, nil, []string{leaseDir(lease)})
		if err != nil {
			return false, err
		}
		now := v.kv(heartbeatKey(lease)).Mod
		if now == 0 {
			return true, nil
		}
		if seen != 0 && now != seen {
			return false, nil
		}
		var marked []string
		for key := range v.pairs {
			if theirs, ok := strings.CutPrefix(key, leaseDir(lease)+"key/"); ok {
				marked = append(marked, theirs)
			}
		}
		slices.Sort(marked)
		const most = (maxOps - 4) / 2
		some := marked[:min(most, len(marked))]
		held, err := c.readAll(ctx, some)
		if err != nil {
			return false, err
		}
		if held.head.ID != v.head.ID {
			continue // a key may have been put meanwhile
		}
		var w change
		w.add(check(heartbeatKey(lease), now))
		for _, key := range some {
			if p := held.pairs[key]; p != nil && p.Flags>>leaseShift == lease {
				w.add(&api.KVTxnOp{Verb: api.KVDeleteCAS, Key: key, Index: p.ModifyIndex})
				w.entry.Keys = append(w.entry.Keys, key)
			}
			w.add(&api.KVTxnOp{Verb: api.KVDelete, Key: markKey(lease, key)})
		}
		last := len(some) == len(marked)
		if last {
			w.add(&api.KVTxnOp{Verb: api.KVDeleteTree, Key: leaseDir(lease)})
		}
		refused, _, err := c.apply(ctx, w, &v.head)
		if err != nil {
			return false, err
		}
		if refused == nil && last {
			return true, nil
		}
		if refused != nil {
			return false, nil
		}
	}
}

// reap ends leases that are not refreshed, until ctx ends.
func (c *Client) reap(ctx context.Context) {
	type watched struct {
		mod   store.Revision
		since time.Time
	}
	known := map[uint64]watched{}
	for waiting.Pause(ctx, reapEvery) == nil {
		pairs, err := ask(ctx, c, c.timeout, func(ctx context.Context, a *api.Client) (api.KVPairs, error) {
			pairs, _, err := a.KV().List(leases, new(api.QueryOptions).WithContext(ctx))
			return pairs, err
		})
		if err != nil {
			clear(known) // who could not see beats has seen none missing
			continue
		}
		now := time.Now()
		there := map[uint64]bool{}
		for _, p := range pairs {
			name, ok := strings.CutSuffix(strings.TrimPrefix(p.Key, leases), "/beat")
			lease, err := parseLease(name)
			var b heartbeat
			if !ok || err != nil || json.Unmarshal(p.Value, &b) != nil {
				continue
			}
			there[lease] = true
			if was := known[lease]; was.mod != store.Revision(p.ModifyIndex) {
				known[lease] = watched{store.Revision(p.ModifyIndex), now}
				continue
			}
			if now.Sub(known[lease].since) < b.TTL {
				continue
			}
			if _, err := c.expire(ctx, lease, known[lease].mod); err != nil && ctx.Err() == nil {
				c.log.Debug("a lease could not be ended; it is tried again", "lease", leaseID(lease), "error", err)
			}
		}
		for lease := range known {
			if !there[lease] {
				delete(known, lease)
			}
		}
	}
}
