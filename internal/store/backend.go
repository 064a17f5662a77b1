package store

import (
	"context"
	"time"
)

// Backend is what an implementation of Store offers to engine.Engine: reading at a
// revision, and a compare-and-commit. All isolation is built from these.
type Backend interface {
	// ReadKeys reads keys at revision at (0 = now, linearizably) and returns one
	// KV per key, KV{} with the key set when it is missing, and the revision read
	// at. ErrCompacted when that revision is gone.
	ReadKeys(ctx context.Context, at Revision, keys []string) ([]KV, Revision, error)
	// ReadRange reads the keys under a prefix in key order, at most limit (0 =
	// all), likewise.
	ReadRange(ctx context.Context, at Revision, prefix string, limit int) ([]KV, Revision, error)
	// Commit applies c as one revision if all compares hold.
	Commit(ctx context.Context, c Commit) (Outcome, error)
	// GrantLease makes a lease that nobody refreshes and returns its id.
	GrantLease(ctx context.Context, ttl time.Duration) (string, error)
}

// Compare is one condition of a Commit.
type Compare struct {
	Key      string
	Mod      Revision // required mod revision, 0 = missing
	Create   Revision // required create revision, when ByCreate
	ByCreate bool
}

// Holds tells whether the key's state meets the condition.
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

// Outcome tells what became of a Commit.
type Outcome struct {
	Committed bool
	Revision  Revision // of the commit; or, when not committed, the one that Actual was read at
	Actual    []KV     // when not committed: the state of each compared key, values included
}
