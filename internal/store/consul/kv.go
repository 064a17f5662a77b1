package consul

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/store"
)

// Where our keys are. Consul's do not begin with a slash. What is this package's
// own lies beside the cluster's state, under a prefix that begins alike, so that one
// rule of access control is enough.
const ownPrefix = "contiv.io.consul/"

func consulKey(key string) string { return strings.TrimPrefix(key, "/") }

func consulKeys(keys []string) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = consulKey(key)
	}
	return out
}

func ourKey(key string) string { return "/" + key }

// maxOps is how many operations a transaction of Consul may have.
const maxOps = 64

// Capabilities implements store.Backend. A transaction has 64 operations, one of
// which the journal takes, and a request 512 kB, in which values are base64.
func (c *Client) Capabilities() store.Capabilities {
	return store.Capabilities{Ops: store.MinOps, Value: store.MinValue, Bytes: store.MinValue + 10_000}
}

func fromConsul(p *api.KVPair) store.KV {
	return store.KV{Key: ourKey(p.Key), Value: p.Value, Create: store.Revision(p.CreateIndex), Mod: store.Revision(p.ModifyIndex)}
}

// view is what there was at one moment.
type view struct {
	head  entry // the newest of the journal
	pairs map[string]*api.KVPair
}

// kv returns a key, one of Consul's.
func (v view) kv(key string) store.KV {
	if p := v.pairs[key]; p != nil {
		return fromConsul(p)
	}
	return store.KV{Key: ourKey(key)}
}

// under returns what is under a prefix, in the order of keys.
func (v view) under(prefix string) []store.KV {
	var kvs []store.KV
	for key, p := range v.pairs {
		if strings.HasPrefix(key, prefix) {
			kvs = append(kvs, fromConsul(p))
		}
	}
	slices.SortFunc(kvs, func(a, b store.KV) int { return strings.Compare(a.Key, b.Key) })
	return kvs
}

// read reads keys and what is under prefixes in one transaction, linearizably; of
// both together there are at most maxOps-1, and both are Consul's.
func (c *Client) read(ctx context.Context, keys, prefixes []string) (view, error) {
	keys = append([]string{consulKey(store.CommitKey)}, keys...)
	// A transaction with a key that is missing fails, and says which are: another
	// one that says so itself then holds for all of them at once.
	absent := make([]bool, len(keys))
	what := store.OpGet
	if len(prefixes) > 0 {
		what = store.OpRange
	}
	for {
		ops := make(api.TxnOps, 0, len(keys)+len(prefixes))
		for i, key := range keys {
			verb := api.KVGet
			switch {
			case c.agent && i > 0:
				verb = api.KVGetTree // to who may only read Consul does not say that a key is missing
			case absent[i]:
				verb = api.KVCheckNotExists
			}
			ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: key}})
		}
		for _, prefix := range prefixes {
			ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVGetTree, Key: prefix}})
		}
		done, err := c.transact(ctx, what, ops)
		if err != nil {
			return view{}, err
		}
		if len(done.Errors) == 0 {
			v := view{pairs: make(map[string]*api.KVPair, len(done.Results))}
			asked := make(map[string]bool, len(keys))
			for _, key := range keys {
				asked[key] = true
			}
			for _, r := range done.Results {
				if asked[r.KV.Key] || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(r.KV.Key, p) }) {
					v.pairs[r.KV.Key] = r.KV
				}
			}
			v.head, err = parseHead(v.pairs[keys[0]])
			return v, err
		}
		for _, e := range done.Errors {
			if e.OpIndex < len(keys) {
				absent[e.OpIndex] = !absent[e.OpIndex]
			}
		}
	}
}

// transact makes one transaction, which op says the purpose of. That it was refused is in its Errors.
func (c *Client) transact(ctx context.Context, op string, ops api.TxnOps) (*api.TxnResponse, error) {
	begin := time.Now()
	done, err := ask(ctx, c, c.timeout, func(ctx context.Context, a *api.Client) (*api.TxnResponse, error) {
		_, resp, _, err := a.Txn().Txn(ops, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
		return resp, err
	})
	c.requests.Observe(ctx, op, begin, err)
	if err != nil {
		return nil, err
	}
	for _, e := range done.Errors {
		if strings.Contains(e.What, "Permission denied") {
			if op == store.OpCommit || op == store.OpLease { // whose success does not say that commits may be made
				c.denied.Store(true)
			}
			return nil, c.forbidden(e.What)
		}
	}
	if op == store.OpCommit {
		c.denied.Store(false)
	}
	return done, nil
}

// readAll reads any number of keys as they were at one moment. Those of several
// transactions that changed in between, as the journal says, are read again.
func (c *Client) readAll(ctx context.Context, keys []string) (view, error) {
	if len(keys) < maxOps {
		return c.read(ctx, keys, nil)
	}
	for {
		all := view{pairs: make(map[string]*api.KVPair, len(keys))}
		var from *entry // the moment at which what is not pending was as it was read
		for pending := keys; ; {
			for chunk := range slices.Chunk(pending, maxOps-1) {
				v, err := c.read(ctx, chunk, nil)
				if err != nil {
					return view{}, err
				}
				for _, key := range chunk {
					all.pairs[key] = v.pairs[key]
				}
				if all.head = v.head; from == nil {
					from = &v.head
				}
			}
			passed, whole, err := c.since(ctx, *from, all.head)
			if err != nil {
				return view{}, err
			}
			if !whole {
				break // too much has passed: from the start
			}
			pending = slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
				return !slices.ContainsFunc(passed, func(e entry) bool { return e.touches(key) })
			})
			if len(pending) == 0 {
				return all, nil
			}
			head := all.head
			from = &head
		}
	}
}

// revision is the revision of a view: the last commit's, 1 without commits.
func (v view) revision() store.Revision { return max(v.head.mod, 1) }

// Get implements store.Store.
func (c *Client) Get(ctx context.Context, key string) (store.KV, error) {
	kvs, _, err := c.ReadKeys(ctx, 0, []string{key})
	if err != nil {
		return store.KV{}, err
	}
	return kvs[0], nil
}

// Range implements store.Store.
func (c *Client) Range(ctx context.Context, prefix string) ([]store.KV, store.Revision, error) {
	return c.ReadRange(ctx, 0, prefix, 0)
}

// ReadKeys implements store.Backend.
func (c *Client) ReadKeys(ctx context.Context, _ store.Revision, keys []string) ([]store.KV, store.Revision, error) {
	theirs := consulKeys(keys)
	v, err := c.readAll(ctx, theirs)
	if err != nil {
		return nil, 0, err
	}
	kvs := make([]store.KV, len(keys))
	for i, key := range theirs {
		kvs[i] = v.kv(key)
	}
	return kvs, v.revision(), nil
}

// ReadRange implements store.Backend.
func (c *Client) ReadRange(ctx context.Context, at store.Revision, prefix string, limit int) ([]store.KV, store.Revision, error) {
	_, ranges, rev, err := c.ReadMany(ctx, at, nil, []string{prefix}, limit)
	if err != nil {
		return nil, 0, err
	}
	return ranges[0], rev, nil
}

// ReadMany implements store.Backend. Consul knows no limit: what is beyond it
// travels for nothing.
func (c *Client) ReadMany(ctx context.Context, _ store.Revision, keys, prefixes []string, limit int) ([]store.KV, [][]store.KV, store.Revision, error) {
	v, err := c.read(ctx, consulKeys(keys), consulKeys(prefixes))
	if err != nil {
		return nil, nil, 0, err
	}
	kvs, ranges := make([]store.KV, len(keys)), make([][]store.KV, len(prefixes))
	for i, key := range keys {
		kvs[i] = v.kv(consulKey(key))
	}
	for i, prefix := range prefixes {
		ranges[i] = v.under(consulKey(prefix))
		if limit > 0 && len(ranges[i]) > limit {
			ranges[i] = ranges[i][:limit]
		}
	}
	return kvs, ranges, v.revision(), nil
}
