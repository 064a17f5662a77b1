package consul

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// change is a transaction in the making, without the journal's part.
type change struct {
	ops    api.TxnOps
	leases []int // operations that look whether a lease is there
	entry  entry // its Keys and Trees
}

func (w *change) add(op *api.KVTxnOp) { w.ops = append(w.ops, &api.TxnOp{KV: op}) }

// flags mark each write by its commit, so that it changes the key also when the value
// is the same (Consul leaves an equal pair as it is), and say which lease it has.
func flags(lease, n uint64) uint64 { return lease<<leaseShift | n&(1<<leaseShift-1) }

// Commit implements store.Backend.
func (c *Client) Commit(ctx context.Context, commit store.Commit) (store.Outcome, error) {
	keys := make([]string, len(commit.Compares))
	for i, cmp := range commit.Compares {
		keys[i] = cmp.Key
	}
	mods := map[string]store.Revision{} // of keys that are compared by their creation
	for {
		w, err := c.translate(commit, mods)
		if err != nil {
			return store.Outcome{}, err
		}
		refused, rev, err := c.apply(ctx, w, nil)
		if err != nil {
			return store.Outcome{}, err
		}
		if refused == nil {
			c.one.Wrote(commit)
			return store.Outcome{Committed: true, Revision: rev}, nil
		}
		out := store.Outcome{}
		if out.Actual, out.Revision, err = c.ReadKeys(ctx, 0, keys); err != nil {
			return store.Outcome{}, err
		}
		learned, holds := false, true
		for i, cmp := range commit.Compares {
			kv := out.Actual[i]
			holds = holds && cmp.Holds(kv)
			if !cmp.ByCreate || !kv.Exists() || !cmp.Holds(kv) {
				continue
			}
			assumed, known := mods[cmp.Key]
			if !known {
				assumed = cmp.Create
			}
			if kv.Mod != assumed {
				mods[cmp.Key], learned = kv.Mod, true
			}
		}
		switch {
		case !holds:
			return out, nil
		case learned:
			continue
		case slices.ContainsFunc(w.leases, func(i int) bool { return slices.Contains(refused, i) }):
			return store.Outcome{}, store.ErrSessionLost
		}
		return out, nil
	}
}

// apply makes a change and its entry in the journal one transaction. It returns
// which operations were refused, if some were. With a head the change is of what
// there was then, and refused when others have committed since.
func (c *Client) apply(ctx context.Context, w change, at *entry) (refused []int, rev store.Revision, err error) {
	c.committing.Lock()
	defer c.committing.Unlock()
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: time.Millisecond, Max: 64 * time.Millisecond, Jitter: 0.8})
	for {
		head := at
		if head == nil {
			if head = c.head; head == nil {
				v, err := c.read(ctx, nil, nil)
				if err != nil {
					return nil, 0, err
				}
				head = &v.head
			}
		}
		c.head = nil // if what follows fails it is unknown
		next := head.after()
		next.Keys, next.Trees = w.entry.Keys, w.entry.Trees
		text, err := json.Marshal(next)
		if err != nil {
			return nil, 0, err
		}
		ops := make(api.TxnOps, 0, len(w.ops)+2)
		for _, op := range w.ops {
			kv := *op.KV
			if kv.Verb == api.KVCAS || kv.Verb == api.KVSet {
				kv.Flags = flags(kv.Flags, next.N)
			}
			ops = append(ops, &api.TxnOp{KV: &kv})
		}
		ops = append(ops,
			&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: slotKey(next.N), Value: text}},
			&api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: consulKey(store.CommitKey), Value: text, Index: uint64(head.mod)}})
		if len(ops) > maxOps {
			return nil, 0, model.Errorf(store.ErrTooLarge, "transaction has %d operations, Consul takes %d", len(ops), maxOps)
		}
		done, err := c.transact(ctx, store.OpCommit, ops)
		if err != nil {
			return nil, 0, err
		}
		if len(done.Errors) == 0 {
			for _, r := range done.Results {
				if r.KV.Key == consulKey(store.CommitKey) {
					next.mod = store.Revision(r.KV.ModifyIndex)
				}
			}
			c.head = &next
			return nil, next.mod, nil
		}
		refused = make([]int, len(done.Errors))
		for i, e := range done.Errors {
			refused[i] = e.OpIndex
		}
		if at != nil || !slices.Equal(refused, []int{len(ops) - 1}) {
			return refused, 0, nil
		}
		// Somebody else's commit was in between; what this one rests on is as it was.
		if err := retry.Pause(ctx); err != nil {
			return nil, 0, err
		}
	}
}

// translate makes operations of a commit: what is only compared first, then what
// is deleted, then what is put. mods are the present revisions of keys that are
// compared by their creation; of others that is taken for it.
func (c *Client) translate(commit store.Commit, mods map[string]store.Revision) (change, error) {
	var w change
	deleted := func(key string) bool {
		return slices.ContainsFunc(commit.DeletePrefixes, func(p string) bool { return strings.HasPrefix(key, p) })
	}
	puts := make(map[string]bool, len(commit.Puts))
	for _, put := range commit.Puts {
		puts[put.Key] = true
	}
	// Compared and put by one operation. What is compared and deleted takes two:
	// Consul's delete-cas takes a missing key for deleted.
	swaps := map[string]store.Revision{}
	for _, cmp := range commit.Compares {
		if _, twice := swaps[cmp.Key]; !cmp.ByCreate && !twice && puts[cmp.Key] && !deleted(cmp.Key) {
			swaps[cmp.Key] = cmp.Mod
			continue
		}
		want := cmp.Mod
		if cmp.ByCreate {
			if want = cmp.Create; mods[cmp.Key] != 0 {
				want = mods[cmp.Key]
			}
		}
		w.add(check(consulKey(cmp.Key), want))
	}
	for _, prefix := range commit.DeletePrefixes {
		w.add(&api.KVTxnOp{Verb: api.KVDeleteTree, Key: consulKey(prefix)})
		w.entry.Trees = append(w.entry.Trees, consulKey(prefix))
	}
	for _, key := range commit.Deletes {
		theirs := consulKey(key)
		w.entry.Keys = append(w.entry.Keys, theirs)
		w.add(&api.KVTxnOp{Verb: api.KVDelete, Key: theirs})
	}
	held := map[uint64]bool{}
	for _, put := range commit.Puts {
		if put.Key == store.CommitKey {
			continue // the journal's head
		}
		theirs := consulKey(put.Key)
		w.entry.Keys = append(w.entry.Keys, theirs)
		lease, err := parseLease(put.Lease)
		if err != nil {
			return w, err
		}
		op := &api.KVTxnOp{Verb: api.KVSet, Key: theirs, Value: put.Value, Flags: lease}
		if mod, compared := swaps[put.Key]; compared {
			op.Verb, op.Index = api.KVCAS, uint64(mod)
		}
		w.add(op)
		if lease == 0 {
			continue
		}
		w.add(&api.KVTxnOp{Verb: api.KVSet, Key: markKey(lease, theirs)})
		if !held[lease] {
			held[lease] = true
			w.leases = append(w.leases, len(w.ops))
			w.add(&api.KVTxnOp{Verb: api.KVGet, Key: heartbeatKey(lease)})
		}
	}
	return w, nil
}

// check looks whether a key has a revision; 0 = is missing.
func check(key string, mod store.Revision) *api.KVTxnOp {
	if mod == 0 {
		return &api.KVTxnOp{Verb: api.KVCheckNotExists, Key: key}
	}
	return &api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: uint64(mod)}
}
