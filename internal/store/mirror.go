package store

import (
	"bytes"
	"context"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// MirrorState turns lists and commits into the batches that Store.Mirror
// promises. Implementations of Store feed it; it remembers what its consumer
// has been told, which is what makes differences after a gap possible.
type MirrorState struct {
	prefixes []string
	commits  bool
	known    map[string]KV
	listed   bool
	last     Revision
	of       Incarnation // at the newest list

	since func() string // nil = place
	place string        // of what was delivered
	older bool          // what the next list is of
}

// KeepMirror is the loop of Store.Mirror: it calls follow again whenever there is a
// gap, whose reason it reports, with pauses that grow until one has followed. An
// error of follow, beside a reason, ends it.
func KeepMirror(ctx context.Context, prefixes []string, opts []MirrorOption, follow func(state *MirrorState, onState func(error)) (following bool, reason, err error)) error {
	var o MirrorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.OnState == nil {
		o.OnState = func(error) {}
	}
	state := NewMirrorState(prefixes, o.Commits)
	state.SetSince(o.Since)
	retry := waiting.NewRetry(waiting.BackoffConfig{Base: 40 * time.Millisecond, Max: 1200 * time.Millisecond, Jitter: 0.4})
	for {
		following, reason, err := follow(state, o.OnState)
		if err != nil {
			return err
		}
		if following {
			retry.Reset()
		}
		o.OnState(reason)
		if err := retry.Pause(ctx); err != nil {
			return err
		}
	}
}

// NewMirrorState starts a mirror that has delivered nothing yet.
func NewMirrorState(prefixes []string, commits bool) *MirrorState {
	m := &MirrorState{commits: commits, known: map[string]KV{}}
	sorted := append([]string(nil), prefixes...)
	sort.Strings(sorted)
	for _, p := range sorted {
		if n := len(m.prefixes); n > 0 && strings.HasPrefix(p, m.prefixes[n-1]) {
			continue // lies under the one before
		}
		m.prefixes = append(m.prefixes, p)
	}
	return m
}

// Forget has the next list be a snapshot: the consumer knows that it has nothing.
func (m *MirrorState) Forget() { m.known, m.listed = map[string]KV{}, false }

// At returns up to where everything was delivered, and of which store; 0 = nothing was.
func (m *MirrorState) At() (rev Revision, place string, of Incarnation) {
	if !m.listed {
		return 0, "", of
	}
	return m.last, m.place, m.of
}

// Advance notes that nothing was left to deliver up to a revision.
func (m *MirrorState) Advance(rev Revision, place string) {
	if m.listed && rev > m.last {
		m.last, m.place = rev, place
	}
}

// Prefixes returns what to list: sorted, none under another.
func (m *MirrorState) Prefixes() []string { return m.prefixes }

// Last returns the revision up to which everything was delivered.
func (m *MirrorState) Last() Revision { return m.last }

// SetSince sets MirrorOptions.Since.
func (m *MirrorState) SetSince(since func() string) { m.since = since }

// Since returns, before a list begins, the Place that the store's history is to have; "" =
// any will do.
func (m *MirrorState) Since() string {
	if m.since != nil {
		return m.since()
	}
	return m.place
}

// SetPlace notes, before Relist or Commit, its Place, "" = unknown; and, of a list, whether
// the store's history lacks what Since returned.
func (m *MirrorState) SetPlace(place string, older bool) {
	if m.older = older; place != "" {
		m.place = place
	}
}

// Span returns the one contiguous range of keys [from, to) that covers all
// prefixes, and CommitKey when the mirror follows commits: one watch on it sees
// whole transactions in order. to = "" means no end.
func (m *MirrorState) Span() (from, to string) {
	if len(m.prefixes) > 0 {
		from, to = m.prefixes[0], PrefixEnd(m.prefixes[len(m.prefixes)-1])
		for _, p := range m.prefixes[:len(m.prefixes)-1] {
			if end := PrefixEnd(p); end == "" || to != "" && end > to {
				to = end
			}
		}
	}
	if m.commits {
		if from == "" && to == "" && len(m.prefixes) == 0 {
			return CommitKey, CommitKey + "\x00"
		}
		from = min(from, CommitKey)
		if to != "" {
			to = max(to, CommitKey+"\x00")
		}
	}
	return from, to
}

// Wants reports whether the mirror delivers events of the key.
func (m *MirrorState) Wants(key string) bool {
	if key == CommitKey {
		return false
	}
	for _, p := range m.prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// Known returns the keys under a prefix that the consumer has been told of.
func (m *MirrorState) Known(prefix string) []string {
	var keys []string
	for key := range m.known {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Relist takes the complete contents at a revision: the first time it returns
// the snapshot, later the difference to what was delivered before. identity is
// the record at StoreIdentityKey, read before the contents. The batch is to be
// delivered if deliver is true: without events it is when the store is another
// one, has gone back in time, or is further than was delivered: something may have come
// and gone meanwhile.
func (m *MirrorState) Relist(kvs []KV, rev Revision, identity KV) (b Batch, deliver bool) {
	return m.relist(kvs, rev, IncarnationOf(identity))
}

// Pass takes a batch of another mirror of the same prefixes and options, from its
// snapshot on, and returns what is to be delivered of it: so one may go on where another
// has ended.
func (m *MirrorState) Pass(b Batch) (out Batch, deliver bool) {
	if b.Snapshot {
		kvs := make([]KV, len(b.Events))
		for i, e := range b.Events {
			kvs[i] = e.KV
		}
		m.SetPlace(b.Place, b.Older)
		return m.relist(kvs, b.Revision, b.Store)
	}
	for _, e := range b.Events {
		if e.Deleted() {
			delete(m.known, e.KV.Key)
		} else {
			m.known[e.KV.Key] = e.KV
		}
	}
	m.last, m.of = b.Revision, b.Store
	m.SetPlace(b.Place, false)
	return b, true
}

func (m *MirrorState) relist(kvs []KV, rev Revision, of Incarnation) (b Batch, deliver bool) {
	b = Batch{Revision: rev, Snapshot: !m.listed, Listed: true, Older: m.older, Place: m.place, Store: of}
	now := make(map[string]KV, len(kvs))
	for _, kv := range kvs {
		switch {
		case !m.Wants(kv.Key):
		case kv.Exists():
			now[kv.Key] = kv
		default: // no store lists what is not there, nor a key twice; who relays one may
			delete(now, kv.Key)
		}
	}
	for key, kv := range now {
		was, had := m.known[key]
		// Revisions alone do not tell: the store may be another one.
		if had && was.Mod == kv.Mod && was.Create == kv.Create && bytes.Equal(was.Value, kv.Value) {
			continue
		}
		b.Events = append(b.Events, Event{KV: kv, Prev: was.Value})
	}
	for key, was := range m.known {
		if _, still := now[key]; !still {
			b.Events = append(b.Events, Event{KV: KV{Key: key, Mod: rev}, Prev: was.Value})
		}
	}
	sort.Slice(b.Events, func(i, j int) bool { return b.Events[i].KV.Key < b.Events[j].KV.Key })
	deliver = !m.listed || b.Older || len(b.Events) > 0 || rev != m.last || !reflect.DeepEqual(of, m.of)
	m.known, m.listed, m.last, m.of, m.older = now, true, rev, of, false
	return b, deliver
}

// Commit takes all that one revision did within Span: new states of keys, a
// deleted one with Create 0.
func (m *MirrorState) Commit(kvs []KV, rev Revision) (b Batch, deliver bool) {
	b = Batch{Revision: rev, Place: m.place, Store: m.of}
	for _, kv := range kvs {
		if kv.Key == CommitKey {
			deliver = deliver || m.commits
		}
		if !m.Wants(kv.Key) {
			continue
		}
		was, had := m.known[kv.Key]
		switch {
		case kv.Exists():
			m.known[kv.Key] = kv
		case had:
			delete(m.known, kv.Key)
		default:
			deliver = true // it came and went between two batches: only the revision is news
			continue
		}
		b.Events = append(b.Events, Event{KV: kv, Prev: was.Value})
	}
	m.last = max(m.last, rev)
	return b, deliver || len(b.Events) > 0
}
