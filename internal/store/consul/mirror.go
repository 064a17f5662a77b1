package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/store"
)

// watchWait is how long Consul is asked to hold an answer back while nothing happens.
const watchWait = 20 * time.Second

// scanWait is the same of one mirror of each client: Consul judges a token when it is asked,
// so rights that were taken away show with the next question. The others then ask, too.
const scanWait = 5 * time.Second

// Mirror implements store.Store: list in one transaction, then wait for the commit
// key to change, and read what the journal says has changed.
func (c *Client) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	return store.KeepMirror(ctx, prefixes, opts, func(state *store.MirrorState, onState func(error)) (following bool, reason, err error) {
		return (&mirror{client: c, state: state, fn: fn, onState: onState}).follow(ctx)
	})
}

type mirror struct {
	client  *Client
	state   *store.MirrorState
	fn      func(store.Batch) error
	onState func(error)
}

// follow lists and waits until there is a gap, whose reason it returns; err is what
// ends the mirror. following tells whether the list was read.
func (m *mirror) follow(ctx context.Context) (following bool, reason, err error) {
	stopped := func(reason error) (bool, error, error) {
		if ctx.Err() != nil {
			return following, nil, ctx.Err()
		}
		return following, reason, nil
	}
	// Of a list Consul gives what the token may read, so to who may read nothing an empty one.
	if _, _, err := m.client.await(ctx, 0); err != nil {
		return stopped(err)
	}
	known := parsePlace(m.state.Since())
	v, err := m.list(ctx, known)
	if err != nil {
		return stopped(err)
	}
	var kvs []store.KV
	for _, prefix := range m.state.Prefixes() {
		kvs = append(kvs, v.under(consulKey(prefix))...)
	}
	m.state.SetPlace(v.head.place(), v.isMissing(known))
	if b, deliver := m.state.Relist(kvs, v.revision(), v.kv(consulKey(store.StoreIdentityKey))); deliver {
		if err := m.fn(b); err != nil {
			return false, nil, err
		}
	}
	following = true
	m.onState(nil)
	head := v.head
	for index := uint64(head.mod); ; {
		next, at, err := m.client.await(ctx, index)
		if err != nil {
			return stopped(err)
		}
		if at < index {
			at = 0 // as Consul's documentation of blocking queries has it
		}
		if index = at; next.ID == head.ID {
			continue
		}
		kvs, to, err := m.changes(ctx, head, next)
		if err != nil {
			return stopped(err)
		}
		head = to
		m.state.SetPlace(head.place(), false)
		if b, deliver := m.state.Commit(kvs, to.mod); deliver {
			if err := m.fn(b); err != nil {
				return following, nil, err
			}
		}
	}
}

// list reads all prefixes at one moment, and where a commit that is known stands in the
// journal. There are few of them.
func (m *mirror) list(ctx context.Context, known entry) (view, error) {
	var prefixes []string
	for _, p := range m.state.Prefixes() {
		prefixes = append(prefixes, consulKey(p))
	}
	if len(prefixes) > maxOps-3 {
		return view{}, fmt.Errorf("a mirror of %d prefixes: Consul's transactions take %d", len(prefixes), maxOps-3)
	}
	return m.client.read(ctx, []string{consulKey(store.StoreIdentityKey)}, append(prefixes, known.slot()...))
}

// changes returns the present states of all that commits after one up to another
// have touched, or to a later one, which it returns, all of one moment.
func (m *mirror) changes(ctx context.Context, from, to entry) ([]store.KV, entry, error) {
	touched := map[string]store.Revision{} // keys to be read, and the last of the commits that touched each
	note := func(from, to entry) (more bool, err error) {
		passed, whole, err := m.client.since(ctx, from, to)
		if err != nil {
			return false, err
		}
		if !whole {
			return false, fmt.Errorf("commits up to %d: %w", to.N, store.ErrCompacted)
		}
		for _, e := range passed {
			keys := slices.Clone(e.Keys)
			for _, tree := range e.Trees {
				for _, key := range m.state.Known(ourKey(tree)) {
					keys = append(keys, consulKey(key))
				}
			}
			for _, key := range keys {
				if m.state.Wants(ourKey(key)) {
					_, known := touched[key]
					touched[key], more = e.mod, more || !known
				}
			}
		}
		return more, nil
	}
	kvs := []store.KV{{Key: store.CommitKey, Mod: to.mod}}
	more, err := note(from, to)
	for more && err == nil {
		keys := slices.Sorted(maps.Keys(touched))
		var v view
		if v, err = m.client.readAll(ctx, keys); err != nil {
			break
		}
		kvs = kvs[:1]
		for _, key := range keys {
			kvs = append(kvs, v.kv(key))
		}
		if more = v.head.ID != to.ID; more { // others committed before it was read
			more, err = note(to, v.head)
			to = v.head
		}
	}
	for i, kv := range kvs[1:] {
		if !kv.Exists() { // of what is missing Consul has no revision
			kvs[1+i].Mod = touched[consulKey(kv.Key)]
		}
	}
	return kvs, to, err
}

// await returns the journal's newest entry when its index is another one, or after
// some time.
func (c *Client) await(ctx context.Context, index uint64) (entry, uint64, error) {
	type answer struct {
		pair *api.KVPair
		at   uint64
	}
	held := watchWait
	if c.scanning.CompareAndSwap(false, true) {
		defer c.scanning.Store(false)
		held = scanWait
	}
	// Consul adds up to a sixteenth of the time.
	a, err := ask(ctx, c, held+held/16+c.timeout, func(ctx context.Context, a *api.Client) (answer, error) {
		waits, cancel := context.WithCancel(ctx)
		var watching sync.WaitGroup
		defer watching.Wait()
		defer cancel()
		refused := c.refused.Next()
		watching.Go(func() {
			select {
			case <-refused:
				cancel()
			case <-waits.Done():
			}
		})
		pair, meta, err := a.KV().Get(consulKey(store.CommitKey), (&api.QueryOptions{WaitIndex: index, WaitTime: held}).WithContext(waits))
		if waits.Err() != nil && ctx.Err() == nil {
			pair, meta, err = a.KV().Get(consulKey(store.CommitKey), new(api.QueryOptions).WithContext(ctx))
		}
		if said, ok := errors.AsType[api.StatusError](err); ok && said.Code == http.StatusForbidden {
			c.refused.Notify()
		}
		if err != nil {
			return answer{}, err
		}
		return answer{pair, meta.LastIndex}, nil
	})
	if err != nil {
		return entry{}, 0, err
	}
	e, err := parseHead(a.pair)
	return e, a.at, err
}
