package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store"
)

// Harness gives the suite one implementation, over data that are empty.
type Harness struct {
	// Open connects to the data; the suite closes what it opens.
	Open func(t *testing.T) store.Store
	// Direct is like Open, but Break does not touch the connection.
	Direct func(t *testing.T) store.Store
	// Break makes the store unreachable through the connections of Open until
	// Heal; their mirrors lose their connection. nil when that cannot happen.
	Break, Heal func(t *testing.T)
	// Compact forgets all revisions but the present one.
	Compact func(t *testing.T)
	// Backup takes a backup of the data, which restore puts back; nil when that is not tried.
	Backup func(t *testing.T) (restore func())
	// Can is what the store's backend is capable of.
	Can store.Capabilities
	// TTL is what sessions have: short, but more than a busy machine stands still.
	TTL time.Duration
	// Patience bounds how long anything may take.
	Patience time.Duration
}

// Run runs the suite. fresh is called for each test.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	t.Helper()
	run(t, fresh, []test{
		{"Values", testValues},
		{"ReadOwnWrites", testReadOwnWrites},
		{"Abort", testAbort},
		{"Snapshot", testSnapshot},
		{"Ranges", testRanges},
		{"PrefetchScopes", testPrefetchScopes},
		{"Limits", testLimits},
		{"Serializable", testSerializable},
		{"WriteSkew", testWriteSkew},
		{"Phantoms", testPhantoms},
		{"SweepGenerations", testSweep},
		{"SweepRace", testSweepRace},
		{"CreatorsAndLister", testCreatorsAndLister},
		{"CreateRace", testCreateRace},
		{"Fence", testFence},
		{"CommitRevision", testCommitRevision},
		{"Follower", testFollower},
		{"FreshReads", testFreshReads},
		{"Near", testCachedReads},
		{"NearSteps", testCachedReadSteps},
		{"Cancel", testCancel},
		{"Unavailable", testUnavailable},
		{"Sessions", testSessions},
		{"SessionAbandoned", testSessionAbandoned},
		{"Election", testElection},
		{"ElectionFence", testElectionFence},
		{"Registry", testRegistry},
	})
	RunMirrors(t, fresh)
}

// RunMirrors runs the part of the suite that is about mirrors, for what only mirrors.
func RunMirrors(t *testing.T, fresh func(t *testing.T) Harness) {
	t.Helper()
	run(t, fresh, []test{
		{"MirrorTransactions", testMirrorTransactions},
		{"MirrorPrefixes", testMirrorPrefixes},
		{"MirrorDeletions", testMirrorDeletions},
		{"MirrorGap", testMirrorGap},
		{"MirrorReconnect", testMirrorReconnect},
		{"MirrorEnds", testMirrorReturnsErrors},
		{"MirrorOlder", testMirrorOlder},
	})
}

type test struct {
	name string
	run  func(*testing.T, *bench)
}

func run(t *testing.T, fresh func(t *testing.T) Harness, tests []test) {
	t.Helper()
	breaking := []string{"Unavailable", "MirrorGap", "MirrorReconnect", "MirrorEnds"}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := fresh(t)
			if h.Break == nil && slices.Contains(breaking, test.name) {
				t.Skip("the connection cannot break")
			}
			ctx, cancel := context.WithTimeout(t.Context(), h.Patience)
			t.Cleanup(cancel)
			b := &bench{Harness: h, t: t, ctx: ctx}
			b.Store = b.open()
			test.run(t, b)
		})
	}
}

// bench is what one test works with.
type bench struct {
	Harness
	store.Store
	t   *testing.T
	ctx context.Context //nolint:containedctx // lives as long as its test
}

// open returns another connection, closed at the end of the test.
func (b *bench) open() store.Store {
	b.t.Helper()
	return b.own(b.Open(b.t))
}

// writer returns a connection that Break does not touch.
func (b *bench) writer() store.Store {
	b.t.Helper()
	return b.own(b.Direct(b.t))
}

func (b *bench) own(st store.Store) store.Store {
	b.t.Cleanup(func() {
		if err := st.Close(); err != nil {
			b.t.Errorf("close: %v", err)
		}
	})
	return st
}

// update commits fn, which must succeed.
func (b *bench) update(fn func(tx store.Tx) error) store.Revision {
	b.t.Helper()
	rev, err := b.Update(b.ctx, fn)
	if err != nil {
		b.t.Fatalf("update: %v", err)
	}
	return rev
}

// put writes pairs of key and value in one transaction.
func (b *bench) put(pairs ...string) store.Revision {
	b.t.Helper()
	return b.update(func(tx store.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			tx.Put(key(pairs[i]), []byte(pairs[i+1]), nil)
		}
		return nil
	})
}

// value reads a key; "" when it is missing.
func (b *bench) value(name string) string {
	b.t.Helper()
	kv, err := b.Get(b.ctx, key(name))
	if err != nil {
		b.t.Fatalf("get %s: %v", name, err)
	}
	return string(kv.Value)
}

// key puts the names of tests where mirrors look.
func key(name string) string { return store.Root + "state/" + name }

// watcher is a mirror under observation.
type watcher struct {
	b      *bench
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	batches []store.Batch
	states  []error
	changed chan struct{}
	err     error
}

// mirror starts a mirror through a connection.
func (b *bench) mirror(st store.Store, prefixes []string, opts ...store.MirrorOption) *watcher {
	ctx, cancel := context.WithCancel(b.ctx)
	w := &watcher{b: b, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	note := func(change func()) {
		w.mu.Lock()
		defer w.mu.Unlock()
		change()
		close(w.changed)
		w.changed = make(chan struct{})
	}
	opts = append(opts, store.OnState(func(err error) { note(func() { w.states = append(w.states, err) }) }))
	go func() {
		defer close(w.done)
		w.err = st.Mirror(ctx, prefixes, func(batch store.Batch) error {
			note(func() { w.batches = append(w.batches, batch) })
			return nil
		}, opts...)
	}()
	b.t.Cleanup(w.stop)
	return w
}

func (w *watcher) stop() {
	w.cancel()
	<-w.done
}

// until waits for a condition on what the mirror has delivered.
func (w *watcher) until(what string, cond func(batches []store.Batch, states []error) bool) []store.Batch {
	w.b.t.Helper()
	for {
		w.mu.Lock()
		ok, batches, changed := cond(w.batches, w.states), w.batches, w.changed
		w.mu.Unlock()
		if ok {
			return batches
		}
		select {
		case <-changed:
		case <-w.b.ctx.Done():
			w.b.t.Fatalf("mirror: %s did not happen; it delivered %v", what, render(batches))
		}
	}
}

// reached waits until the mirror has delivered a revision.
func (w *watcher) reached(rev store.Revision) []store.Batch {
	w.b.t.Helper()
	return w.until("reaching the revision", func(batches []store.Batch, _ []error) bool {
		return len(batches) > 0 && batches[len(batches)-1].Revision >= rev
	})
}

// render shows batches without revisions: "snapshot a=1 b=2", "a=2(1) -b(2)".
func render(batches []store.Batch) []string {
	prefix := len(key(""))
	var lines []string
	for _, batch := range batches {
		line := ""
		if batch.Snapshot {
			line = "snapshot"
		}
		for _, e := range batch.Events {
			if line != "" {
				line += " "
			}
			if e.Deleted() {
				line += "-" + e.KV.Key[prefix:]
			} else {
				line += e.KV.Key[prefix:] + "=" + string(e.KV.Value)
			}
			if e.Prev != nil {
				line += "(" + string(e.Prev) + ")"
			}
		}
		lines = append(lines, line)
	}
	return lines
}
