package store

import (
	"context"
	"time"
)

// Revision orders commits of one store; it only grows. Zero is "none yet".
type Revision int64

// KV is one key with its value and the revisions of its first and last write.
type KV struct {
	Key    string
	Value  []byte
	Create Revision // when the key was created; 0 = the key does not exist
	Mod    Revision // when it was last written
}

// Exists reports whether the key was there.
func (kv KV) Exists() bool { return kv.Create != 0 }

// Mirrorer is what those use who only follow what is stored.
type Mirrorer interface {
	// Mirror calls fn with one complete snapshot of the keys under the prefixes
	// (Batch.Snapshot set), then with one Batch per transaction that touched
	// them, in revision order, from one goroutine, until ctx ends or fn fails;
	// it returns that error. After any gap (compaction, reconnect) it re-lists
	// and delivers the difference, deletions included, as one Batch. While the
	// store is away it keeps trying and calls onState, if given.
	Mirror(ctx context.Context, prefixes []string, fn func(Batch) error, opts ...MirrorOption) error
}

// Reader is what those use who only read.
type Reader interface {
	Mirrorer

	// Get reads one key, linearizably. A missing key is a KV that does not exist,
	// without error.
	Get(ctx context.Context, key string) (KV, error)

	// Range reads all keys under a prefix at one revision, linearizably.
	Range(ctx context.Context, prefix string) ([]KV, Revision, error)

	// CommitRevision returns, linearizably, the revision of the last Update
	// committed by anybody: a mirror that has delivered it is as fresh as a read
	// that starts now.
	CommitRevision(ctx context.Context) (Revision, error)
}

// Store is a distributed (or, in tests, in-memory) transactional store.
// Methods fail with model.ErrUnavailable when the store cannot be reached and
// with the context's error when it ends first.
type Store interface {
	Reader

	// Update runs fn in a serializable transaction and commits it, running fn
	// again when what it read has changed meanwhile (bounded; then
	// model.ErrConflict). fn must have no effects but those through tx. An error
	// from fn aborts and is returned as it is. A transaction that wrote nothing
	// commits nothing and returns the last commit revision, so that waiting for
	// it in a mirror that follows commits always ends.
	// After model.ErrUnavailable or a context's error the outcome is unknown.
	// What is more than the backend takes (Capabilities) is ErrTooLarge.
	Update(ctx context.Context, fn func(tx Tx) error) (Revision, error)

	// NewSession grants a lease that is kept alive until Close or ctx ends; keys
	// put with it vanish ttl after the holder stops refreshing.
	NewSession(ctx context.Context, ttl time.Duration) (Session, error)

	Close() error
}

// MinOps and MinValue are what every backend takes in one transaction (see
// Capabilities); use-cases keep to them, so that they work on every store.
const (
	MinOps   = 63
	MinValue = 350_000
)

// Pending is the create and mod revision that a transaction shows for its own
// uncommitted writes.
const Pending Revision = -1

// Tx is an open transaction. Reads see one snapshot (the first read's) and, over it, the
// transaction's own writes. A Tx is used from one goroutine and not after fn returned.
type Tx interface {
	// Prefetch reads keys in ONE round trip and remembers them for Get, Peek and
	// Create, without putting them into the read set. Call it first with all the
	// keys that the use-case is likely to need: Prefetch + commit is then all
	// that an Update costs.
	Prefetch(keys ...string) error
	// PrefetchScopes reads in ONE round trip what Observe says of scopes and the first
	// limit (> 0) keys under each, and remembers them for Observe and Range, likewise.
	PrefetchScopes(limit int, scopes ...string) error
	// Get reads a key into the read set: the commit fails (and fn runs again) if
	// it has changed by then. A missing key is a KV that does not exist, without
	// error, and joins the read set as missing.
	Get(key string) (KV, error)
	// Peek reads a key without joining the read set.
	Peek(key string) (KV, error)
	// Range reads keys under a prefix, at most limit (0 = all), in key order,
	// WITHOUT phantom protection: pair it with Observe (Table.List does).
	Range(prefix string, limit int) ([]KV, error)
	// Put writes blindly. lease may be nil.
	Put(key string, value []byte, lease Session)
	// Create writes a key that must not exist; if it does by commit time the
	// transaction runs again, and if it does now it fails with model.ErrExists.
	Create(key string, value []byte, lease Session) error
	// Delete removes a key blindly; absent is fine.
	Delete(key string)
	// DeletePrefix removes all keys under a prefix; one operation.
	DeletePrefix(prefix string)
	// Observe puts the generation of a scope into the read set: the commit fails
	// (and fn runs again) when a transaction that touched the scope commits
	// first. After three such failures Update claims the scope, which makes its
	// writers wait for it.
	Observe(scope string) error
	// Touch tells the observers of a scope that this transaction changes it. It
	// is blind: any number of transactions may touch a scope at once.
	Touch(scope string)
	// Require makes the commit depend on the key still being the one created at
	// revision create: the fence of leader writes. When it is not, Update fails
	// with ErrFenced and fn does not run again.
	Require(key string, create Revision)
}

// Event is the new state of one key; KV.Create == 0 means it was deleted.
type Event struct {
	KV   KV
	Prev []byte // value before, when the mirror still knew it; nil otherwise
}

// Deleted reports whether the key is gone.
func (e Event) Deleted() bool { return !e.KV.Exists() }

// Batch is a whole transaction, or a snapshot, as one mirror sees it.
type Batch struct {
	Revision Revision // all commits up to here are in what was delivered so far
	Snapshot bool     // Events are the complete contents, no deletions
	// Listed: Events come of a list, as the snapshot and what is delivered after
	// a gap do. Only then Revision may be lower than before, when the store is
	// another one, or an older state of it.
	Listed bool
	// Older: what was known of the store before this list (see Since) is not in its
	// history any more: a backup was put back, and what was committed then may have brought
	// Revision beyond what it was. Only with Listed, and of stores with a journal.
	Older bool
	// Partial: kinds of rows that do not concern this host were left out of the newest list,
	// and of what follows it. Only with Listed, and never of a store itself.
	Partial bool
	// Place names the newest commit in what was delivered so far, for Since; "" = the store
	// has no journal: that it went back shows in Revision.
	Place string
	// Store is which store the newest list was read from.
	Store  Incarnation
	Events []Event
}

// MirrorOption adjusts a mirror.
type MirrorOption func(*MirrorOptions)

// MirrorOptions are the settings that MirrorOption values fill in.
type MirrorOptions struct {
	// OnState is called with nil when the mirror is (again) following the store,
	// and with the reason when it is not.
	OnState func(error)
	// Commits asks for a Batch, without events, also for every Update that
	// touched nothing under the prefixes.
	Commits bool
	// Since returns what each list is judged by; see the function Since.
	Since func() string
	// Withheld is called when the prefixes do not concern this host; see OnWithheld.
	Withheld func()
}

// FollowCommits makes a mirror deliver a Batch for every Update of anybody,
// without events when it touched nothing under the prefixes, so that
// Batch.Revision reaches every commit revision. Without it Batch.Revision
// reaches only revisions that touched the prefixes, and those of lists.
func FollowCommits() MirrorOption { return func(o *MirrorOptions) { o.Commits = true } }

// Since makes Batch.Older tell whether the store's history has a commit that was known
// before the list began: since returns its Place, "" = none is known. Without it, that is
// the newest that the mirror itself has seen. When too much was committed since to say,
// Older is false.
func Since(since func() string) MirrorOption { return func(o *MirrorOptions) { o.Since = since } }

// OnWithheld tells, in order with batches, that a mirror's source keeps the prefixes from
// this reader: what was delivered before counts no more, and a snapshot comes once the
// reader may have it. A store itself withholds nothing; netmasters do (package relay).
func OnWithheld(f func()) MirrorOption { return func(o *MirrorOptions) { o.Withheld = f } }

// Historian is a Store with a journal, by which it can be told whether a commit is in its
// history. Those whose revisions go back with the data have none.
type Historian interface {
	// Older reports whether a commit, named by its Place, is missing from the store's history.
	Older(ctx context.Context, place string) (bool, error)
}

// OnState reports a mirror's health: nil while it follows the store.
func OnState(f func(error)) MirrorOption { return func(o *MirrorOptions) { o.OnState = f } }

// Session is a lease that its holder keeps alive.
type Session interface {
	ID() string
	// Done is closed when the lease is lost or closed.
	Done() <-chan struct{}
	// Close revokes the lease: keys put with it go at once.
	Close() error
}
