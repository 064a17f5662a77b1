package etcd

import (
	"context"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv/netplugin/v2/internal/store"
)

// maxGets is how many keys one request reads; etcd's default cap is 128.
const maxGets = 100

func fromEtcd(kv *mvccpb.KeyValue) store.KV {
	return store.KV{
		Key: string(kv.Key), Value: kv.Value,
		Create: store.Revision(kv.CreateRevision), Mod: store.Revision(kv.ModRevision),
	}
}

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

// Capabilities implements store.Backend. By default etcd takes 128 operations in each list
// of a transaction, and requests of 1.5 MiB.
func (c *Client) Capabilities() store.Capabilities {
	return store.Capabilities{Ops: 128, Value: 1 << 20, Bytes: 3 << 19, Past: true, Whole: true}
}

// ReadKeys implements store.Backend.
func (c *Client) ReadKeys(ctx context.Context, at store.Revision, keys []string) ([]store.KV, store.Revision, error) {
	out := make([]store.KV, 0, len(keys))
	for chunk := range slices.Chunk(keys, maxGets) {
		kvs, rev, err := c.readChunk(ctx, at, chunk)
		if err != nil {
			return nil, 0, err
		}
		if at == 0 {
			at = rev
		}
		out = append(out, kvs...)
	}
	return out, at, nil
}

func (c *Client) readChunk(ctx context.Context, at store.Revision, keys []string) ([]store.KV, store.Revision, error) {
	if len(keys) == 1 {
		resp, err := request(ctx, c, store.OpGet, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return c.etcd.Get(ctx, keys[0], clientv3.WithRev(int64(at)))
		})
		if err != nil {
			return nil, 0, c.failed(ctx, err)
		}
		return []store.KV{one(keys[0], resp.Kvs)}, store.Revision(resp.Header.Revision), nil
	}
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(key, clientv3.WithRev(int64(at)))
	}
	found, rev, err := c.getAll(ctx, store.OpGet, gets)
	if err != nil {
		return nil, 0, err
	}
	kvs := make([]store.KV, len(keys))
	for i, key := range keys {
		kvs[i] = one(key, found[i])
	}
	return kvs, rev, nil
}

// getAll makes reads, which op says the purpose of, one transaction.
func (c *Client) getAll(ctx context.Context, op string, gets []clientv3.Op) ([][]*mvccpb.KeyValue, store.Revision, error) {
	resp, err := request(ctx, c, op, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.etcd.Txn(ctx).Then(gets...).Commit()
	})
	if err != nil {
		return nil, 0, c.failed(ctx, err)
	}
	found := make([][]*mvccpb.KeyValue, len(gets))
	for i := range gets {
		found[i] = resp.Responses[i].GetResponseRange().Kvs
	}
	return found, store.Revision(resp.Header.Revision), nil
}

// ReadMany implements store.Backend.
func (c *Client) ReadMany(ctx context.Context, at store.Revision, keys, prefixes []string, limit int) ([]store.KV, [][]store.KV, store.Revision, error) {
	gets := make([]clientv3.Op, 0, len(keys)+len(prefixes))
	for _, key := range keys {
		gets = append(gets, clientv3.OpGet(key, clientv3.WithRev(int64(at))))
	}
	for _, prefix := range prefixes {
		gets = append(gets, clientv3.OpGet(prefix, clientv3.WithRange(rangeEnd(prefix)), clientv3.WithLimit(int64(limit)), clientv3.WithRev(int64(at))))
	}
	found, rev, err := c.getAll(ctx, store.OpRange, gets)
	if err != nil {
		return nil, nil, 0, err
	}
	if at != 0 {
		rev = at
	}
	kvs, ranges := make([]store.KV, len(keys)), make([][]store.KV, len(prefixes))
	for i, key := range keys {
		kvs[i] = one(key, found[i])
	}
	for i := range prefixes {
		for _, kv := range found[len(keys)+i] {
			ranges[i] = append(ranges[i], fromEtcd(kv))
		}
	}
	return kvs, ranges, rev, nil
}

func one(key string, kvs []*mvccpb.KeyValue) store.KV {
	if len(kvs) == 0 {
		return store.KV{Key: key}
	}
	return fromEtcd(kvs[0])
}

// ReadRange implements store.Backend. Long ranges are read in pages.
func (c *Client) ReadRange(ctx context.Context, at store.Revision, prefix string, limit int) ([]store.KV, store.Revision, error) {
	const page = 4096
	var kvs []store.KV
	from, end := prefix, rangeEnd(prefix)
	if from == "" {
		from = "\x00"
	}
	for {
		ask := page
		if limit > 0 {
			ask = min(page, limit-len(kvs))
		}
		resp, err := request(ctx, c, store.OpRange, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return c.etcd.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(int64(ask)), clientv3.WithRev(int64(at)))
		})
		if err != nil {
			return nil, 0, c.failed(ctx, err)
		}
		if at == 0 {
			at = store.Revision(resp.Header.Revision)
		}
		kvs = slices.Grow(kvs, len(resp.Kvs))
		for _, kv := range resp.Kvs {
			kvs = append(kvs, fromEtcd(kv))
		}
		if !resp.More || limit > 0 && len(kvs) >= limit {
			return kvs, at, nil
		}
		from = kvs[len(kvs)-1].Key + "\x00"
	}
}

// rangeEnd returns etcd's form of the end of a prefix: "\x00" = all the rest.
func rangeEnd(prefix string) string { return endOr(store.PrefixEnd(prefix)) }

func endOr(end string) string {
	if end == "" {
		return "\x00"
	}
	return end
}

// Commit implements store.Backend. What was compared is read after a failure,
// not by the transaction's other branch, which would travel, be logged and be
// checked with every success.
func (c *Client) Commit(ctx context.Context, commit store.Commit) (store.Outcome, error) {
	req := &pb.TxnRequest{Compare: make([]*pb.Compare, len(commit.Compares))}
	for i, cmp := range commit.Compares {
		req.Compare[i] = compare(cmp)
	}
	var err error
	if req.Success, err = writes(commit); err != nil {
		return store.Outcome{}, err
	}
	resp, err := request(ctx, c, store.OpCommit, func(ctx context.Context) (*pb.TxnResponse, error) {
		resp, err := c.kv.Txn(ctx, req)
		if err != nil {
			err = clientv3.ContextError(ctx, err)
		}
		return resp, err
	})
	if err != nil {
		if isDenied(err) {
			c.denied.Store(true)
		}
		return store.Outcome{}, c.failed(ctx, err)
	}
	c.denied.Store(false)
	c.one.Wrote(commit)
	out := store.Outcome{Committed: resp.Succeeded, Revision: store.Revision(resp.Header.Revision)}
	if !out.Committed {
		keys := make([]string, len(commit.Compares))
		for i, cmp := range commit.Compares {
			keys[i] = cmp.Key
		}
		out.Actual, out.Revision, err = c.ReadKeys(ctx, 0, keys)
	}
	return out, err
}

func compare(c store.Compare) *pb.Compare {
	cmp := &pb.Compare{Key: []byte(c.Key), Result: pb.Compare_EQUAL}
	if c.ByCreate {
		cmp.Target, cmp.TargetUnion = pb.Compare_CREATE, &pb.Compare_CreateRevision{CreateRevision: int64(c.Create)}
	} else {
		cmp.Target, cmp.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: int64(c.Mod)}
	}
	return cmp
}

// writes translates the write set. etcd refuses a transaction that puts a key
// inside a range that it deletes, so deleted ranges leave such keys out.
func writes(commit store.Commit) ([]*pb.RequestOp, error) {
	ops := make([]*pb.RequestOp, 0, len(commit.DeletePrefixes)+len(commit.Deletes)+len(commit.Puts))
	remove := func(from, end string) {
		r := &pb.DeleteRangeRequest{Key: []byte(from), RangeEnd: []byte(end)}
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}})
	}
	if len(commit.DeletePrefixes) > 0 {
		puts := make([]string, 0, len(commit.Puts))
		for _, put := range commit.Puts {
			puts = append(puts, put.Key)
		}
		slices.Sort(puts)
		for _, prefix := range commit.DeletePrefixes {
			from, end := prefix, rangeEnd(prefix)
			for _, key := range puts {
				if !strings.HasPrefix(key, prefix) {
					continue
				}
				if key > from {
					remove(from, key)
				}
				from = key + "\x00"
			}
			remove(from, end)
		}
	}
	for _, key := range commit.Deletes {
		remove(key, "")
	}
	for _, put := range commit.Puts {
		lease, err := parseLease(put.Lease)
		if err != nil {
			return nil, err
		}
		r := &pb.PutRequest{Key: []byte(put.Key), Value: put.Value, Lease: int64(lease)}
		ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}})
	}
	return ops, nil
}
