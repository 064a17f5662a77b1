package store

import (
	"context"
	"strings"
	"time"
)

// Backend is what an implementation of Store offers to engine.Engine: reading at a
// revision, and a compare-and-commit. All isolation is built from these.
type Backend interface {
	// Capabilities does not change while the Backend lives.
	Capabilities() Capabilities
	// ReadKeys reads keys at revision at (0 = now, linearizably) and returns one
	// KV per key, KV{} with the key set when it is missing, and the revision read
	// at. ErrCompacted when that revision is gone. Without Capabilities.Past at is
	// always 0.
	ReadKeys(ctx context.Context, at Revision, keys []string) ([]KV, Revision, error)
	// ReadRange reads the keys under a prefix in key order, at most limit (0 =
	// all), likewise.
	ReadRange(ctx context.Context, at Revision, prefix string, limit int) ([]KV, Revision, error)
	// ReadMany reads keys, and of the keys under each of the prefixes the first limit
	// (> 0), likewise, in one request: MinOps of both together at most.
	ReadMany(ctx context.Context, at Revision, keys, prefixes []string, limit int) (kvs []KV, ranges [][]KV, rev Revision, err error)
	// Commit applies c as one revision if all compares hold.
	Commit(ctx context.Context, c Commit) (Outcome, error)
	// GrantLease makes a lease that is not renewed and returns its id.
	GrantLease(ctx context.Context, ttl time.Duration) (string, error)
}

// Capabilities are what a Backend can do and how much it takes; engine.Engine
// counts by them.
type Capabilities struct {
	Ops   int // most operations of a Commit, as Commit.Ops counts them
	Value int // bytes of the largest value
	Bytes int // bytes of the largest Commit, as Commit.Bytes counts them
	// Past: earlier revisions can be read, for some time. Without, a transaction
	// that reads again when others have committed looks whether what it has read is
	// still so, and runs again if not.
	Past bool
	// Whole: each batch of a mirror is one transaction. Without, a batch may be
	// several in one, with the last value of each key, but never a part of one.
	Whole bool
}

// Compare is one condition of a Commit.
type Compare struct {
	Key      string
	Mod      Revision // required mod revision, 0 = missing
	Create   Revision // required create revision, when ByCreate
	ByCreate bool
}

// Holds reports whether the key's state meets the condition.
func (c Compare) Holds(kv KV) bool {
	if c.ByCreate {
		return kv.Create == c.Create
	}
	return kv.Mod == c.Mod
}

// Put is one write of a Commit; Lease is "" for none.
type Put struct {
	Key   string
	Value []byte
	Lease string
}

// Commit is a whole transaction. DeletePrefixes come first, so Puts may lie
// under them. No key is in both Puts and Deletes.
type Commit struct {
	Compares       []Compare
	DeletePrefixes []string
	Deletes        []string
	Puts           []Put
}

// Ops counts the operations of c as a store with one list of them has to make
// them, such as Consul: a key that is compared by its mod revision and put takes
// one (compare-and-set), unless it is put with a lease; any other compare and
// write takes one each, also of a key that is compared and deleted (Consul's
// delete-cas takes a missing key for deleted). None of the lists of a store with several, such as
// etcd, is longer than that. A prefix deleted takes one, and one more for each
// put under it, around which etcd has to delete.
func (c Commit) Ops() int {
	n := len(c.Compares) + len(c.DeletePrefixes) + len(c.Deletes) + len(c.Puts)
	compared := make(map[string]bool, len(c.Compares))
	for _, x := range c.Compares {
		compared[x.Key] = !x.ByCreate
	}
	for _, put := range c.Puts {
		if compared[put.Key] && put.Lease == "" {
			n--
		}
		for _, prefix := range c.DeletePrefixes {
			if strings.HasPrefix(put.Key, prefix) {
				n++
			}
		}
	}
	return n
}

// opBytes is more than what an operation takes in a request beside its key and
// value.
const opBytes = 32

// Bytes is no less than what c takes in a request.
func (c Commit) Bytes() int {
	n := 0
	for _, x := range c.Compares {
		n += opBytes + len(x.Key)
	}
	for _, prefix := range c.DeletePrefixes {
		n += opBytes + 2*len(prefix)
	}
	for _, key := range c.Deletes {
		n += opBytes + len(key)
	}
	for _, put := range c.Puts {
		n += opBytes + len(put.Key) + len(put.Value)
	}
	return n
}

// Outcome tells what became of a Commit.
type Outcome struct {
	Committed bool
	Revision  Revision // of the commit; or, when not committed, the one that Actual was read at
	Actual    []KV     // when not committed: the state of each compared key, values included
}
