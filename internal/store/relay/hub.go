package relay

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

const (
	// Beat is how often streams get a message that the hub lives, and is fresh if it is.
	Beat = 1500 * time.Millisecond
	// freshTime bounds how long the store may take to say how far it is.
	freshTime = 3 * time.Second
	// maxMirrors are those of one stream.
	maxMirrors = 1024
	// maxSince are bytes of a Place, and of names that a client got from a hub; ours have
	// less than 60.
	maxSince = 256
	// maxPrefixes are those of one mirror.
	maxPrefixes = 64
	// maxWaiting are messages that were not sent yet, of one stream, and maxWaitingBytes
	// their bytes. Beyond that the client gets what they leave, as one message a mirror.
	maxWaiting      = 1024
	maxWaitingBytes = 1 << 20
	// maxRequestBytes are those of the prefixes of one stream's mirrors: of 500 networks they
	// are some 100 KiB.
	maxRequestBytes = 1 << 20
	// maxStreams are those of one client that is known by name. It has one, and others while
	// it is not noticed yet that they broke.
	maxStreams = 4
	// listsFor bounds how long a client may read what it asked for: it keeps a former state
	// of all rows in memory.
	listsFor = 10 * time.Minute
)

// Source is what a Hub stands on: a store.Follower.
type Source interface {
	// Rows returns all rows as they are stored, and of which revision and Batch.Place.
	Rows() ([]store.KV, store.Revision, string)
	// Fresh returns when Rows, and all that Apply has been told, hold what was committed
	// before the call.
	Fresh(ctx context.Context) (store.Revision, error)
	// Older is as store.Historian has it; false of a store that has no journal.
	Older(ctx context.Context, place string) (bool, error)
}

// Grade says which of the rows under a mirror's prefixes its client may read: clients of one
// grade get the same rows. The zero Grade is none.
type Grade struct {
	Name    string
	Partial bool // kinds of rows are left out
}

// Access decides what clients may read. A Hub calls it with its lock held.
type Access interface {
	// Grade returns what a client may read under the prefixes of one mirror. Its errors are
	// of prefixes that may not be mirrored together.
	Grade(who string, prefixes []string) (Grade, error)
	// Show returns a row, or its deletion, as clients of a grade may see it; false = they may
	// not. What it hides of a grade it always hides.
	Show(g Grade, kv store.KV) (store.KV, bool)
}

// Open is the Access of a store without secrets: everybody reads everything.
type Open struct{}

// Grade implements Access.
func (Open) Grade(string, []string) (Grade, error) { return Grade{Name: "all"}, nil }

// Show implements Access.
func (Open) Show(_ Grade, kv store.KV) (store.KV, bool) { return kv, true }

// Hub hands on what a Follower gets. Its methods may be called from any goroutine.
type Hub struct {
	source   Source
	serves   []string
	access   Access
	bell     waiting.Bell // somebody has come
	beat     time.Duration
	listsFor time.Duration
	freshAt  atomic.Int64 // Unix time in nanoseconds when it was found to be fresh

	mu      sync.Mutex
	rows    *iradix.Tree // of store.KV, by key; nil before the first client
	rev     store.Revision
	place   string // likewise
	history history
	subscriptions
	streams map[*stream]struct{}
	named   map[string][]*stream // of clients that are known by name, oldest first
	counts  Stats                // since the start
}

// subscriptions finds the topics of a key.
type subscriptions struct {
	topics     map[string]*topic
	interested map[*topic]struct{} // the ones that get each commit
	at         map[string][]*topic // by each of their prefixes
	lengths    map[int]int         // of prefixes, and how many have it
}

// topic is who mirrors the same, and may read the same of it: a message for them is made
// once. One without a grade gets none.
type topic struct {
	key      string
	prefixes []string
	commits  bool
	grade    Grade
	subs     map[sub]struct{}
}

// sub is one mirror of a stream.
type sub struct {
	s  *stream
	id int
}

// Stats count what a Hub does.
type Stats struct {
	Streams int // now
	Mirrors int // on them
	// Since the start:
	Cut       int // streams whose clients did not read fast enough
	Lists     int // mirrors that got a whole list
	Resumes   int // mirrors that went on with what they had missed
	Collapsed int // times that much waited for a client, which got what that left
}

// NewHub returns a Hub that hands on what lies under serves to those who may read it, and
// refuses the rest. beat 0 is Beat.
func NewHub(source Source, serves []string, access Access, beat time.Duration) *Hub {
	if beat == 0 {
		beat = Beat
	}
	return &Hub{
		source: source, serves: serves, access: access, bell: waiting.NewBell(), beat: beat, listsFor: listsFor,
		subscriptions: subscriptions{topics: map[string]*topic{}, interested: map[*topic]struct{}{}, at: map[string][]*topic{}, lengths: map[int]int{}},
		streams:       map[*stream]struct{}{}, named: map[string][]*stream{},
	}
}

// Run tells streams that the hub lives, and whether it is fresh, until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ask := waiting.NewBell()
	asking.Go(func() { // a slow store does not delay heartbeats
		for {
			select {
			case <-ask:
			case <-ctx.Done():
				return
			}
			if h.fresh(ctx) == nil {
				h.freshAt.Store(time.Now().UnixNano())
			}
		}
	})
	for {
		h.mu.Lock()
		alone := len(h.streams) == 0
		h.mu.Unlock()
		if alone {
			select {
			case <-h.bell:
			case <-ctx.Done():
				return
			}
		}
		if waiting.Pause(ctx, h.beat) != nil {
			return
		}
		ask.Ring()
		h.beatAll()
	}
}

func (h *Hub) beatAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := api.MirrorMessage{Fresh: time.Since(time.Unix(0, h.freshAt.Load())) < 2*h.beat, Alive: true, Revision: int64(h.rev), Place: h.place}
	if h.rows == nil {
		now.Revision, now.Place = 0, ""
	}
	beat := line(now)
	for s := range h.streams {
		h.pushLocked(s, item{line: beat})
	}
}

var freshLine = line(api.MirrorMessage{Fresh: true})

func (h *Hub) fresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshTime)
	defer cancel()
	_, err := h.source.Fresh(ctx)
	return err
}

// Stats returns what the Hub does.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.counts
	st.Streams = len(h.streams)
	for s := range h.streams {
		st.Mirrors += len(s.mirrors)
	}
	return st
}

// Apply takes the next batch of the Follower, in order, which changed what some clients may
// read.
func (h *Hub) Apply(b store.Batch, regraded Clients) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.history.continues(b) || b.Listed && h.rows != nil && b.Revision < h.rev { // it may be another store, or an older state of it
		h.history.begin(b)
		h.rows = nil
		for s := range h.streams {
			s.endLocked("this netmaster has read the store again")
		}
		return
	}
	h.history.add(b, h.served)
	switch {
	case h.rows == nil:
		return
	case b.Revision <= h.rev: // the rows had it
		h.regradeLocked(regraded)
		return
	}
	before := h.rev
	h.rev, h.place = b.Revision, b.Place
	txn := h.rows.Txn()
	touched := map[*topic][]api.MirrorRow{}
	for _, e := range b.Events {
		if !h.served(e.KV.Key) {
			continue
		}
		if e.Deleted() {
			txn.Delete([]byte(e.KV.Key))
		} else {
			txn.Insert([]byte(e.KV.Key), e.KV)
		}
		for n := range h.lengths {
			if n > len(e.KV.Key) {
				continue
			}
			for _, t := range h.at[e.KV.Key[:n]] {
				if kv, shown := h.access.Show(t.grade, e.KV); shown {
					touched[t] = append(touched[t], toWire(kv))
				}
			}
		}
	}
	h.rows = txn.Commit()
	for t := range h.interested {
		if _, is := touched[t]; !is {
			touched[t] = nil
		}
	}
	for t, rows := range touched {
		told := line(api.MirrorMessage{Rows: rows, Revision: int64(b.Revision), Place: b.Place})
		for to := range t.subs {
			h.pushLocked(to.s, item{id: to.id, line: told, after: before})
		}
	}
	h.regradeLocked(regraded)
}

func (h *Hub) served(key string) bool {
	return slices.ContainsFunc(h.serves, func(p string) bool { return strings.HasPrefix(key, p) })
}

// readLocked takes all rows, unless they are there.
func (h *Hub) readLocked() {
	if h.rows != nil {
		return
	}
	rows, rev, place := h.source.Rows()
	txn := iradix.New().Txn()
	for _, kv := range rows {
		if h.served(kv.Key) {
			txn.Insert([]byte(kv.Key), kv)
		}
	}
	h.rows, h.rev, h.place = txn.Commit(), rev, place
}

// begin begins a mirror on a stream with a list.
func (h *Hub) begin(s *stream, ask api.MirrorRequest) error {
	if max(len(ask.Since), len(ask.AtPlace), len(ask.Store), len(ask.Grade)) > maxSince {
		return model.Errorf(model.ErrInvalid, "mirror: a position has at most %d bytes", maxSince)
	}
	if len(ask.Prefixes) > maxPrefixes {
		return model.Errorf(model.ErrInvalid, "mirror: at most %d prefixes are allowed", maxPrefixes)
	}
	for _, p := range ask.Prefixes {
		if !h.served(p) {
			return model.Errorf(model.ErrInvalid, "mirror: keys under %q are not relayed", p)
		}
	}
	state := store.NewMirrorState(ask.Prefixes, ask.Commits)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := s.mirrors[ask.ID]; is || ask.ID <= 0 || len(s.mirrors) == maxMirrors {
		return model.Errorf(model.ErrInvalid, "mirror: %d is not the id of another mirror, or there are too many", ask.ID)
	}
	n := bytesOf(state.Prefixes())
	if s.asked+n > maxRequestBytes {
		return model.Errorf(model.ErrInvalid, "mirror: prefixes of more than %d bytes are requested on one stream", maxRequestBytes)
	}
	grade, err := h.access.Grade(s.who, state.Prefixes())
	if err != nil {
		return err
	}
	h.readLocked()
	s.asked += n
	t := h.topicLocked(state.Prefixes(), ask.Commits, grade)
	if gap, ok := h.gapLocked(ask, grade); ok {
		h.subscribeLocked(s, ask.ID, t)
		h.counts.Resumes++
		h.pushLocked(s, item{id: ask.ID, gap: gap, of: t, rev: h.rev, place: h.place, after: store.Revision(ask.At)})
		return nil
	}
	h.enterMirrorLocked(s, ask.ID, t, ask.Since)
	return nil
}

// gapLocked returns the commits that a client has missed which goes on with a mirror; false
// = it has to list, or its rows are withheld.
func (h *Hub) gapLocked(ask api.MirrorRequest, grade Grade) ([]commit, bool) {
	if ask.At == 0 || grade == (Grade{}) || ask.Grade != grade.Name || h.history.rev != h.rev {
		return nil, false
	}
	v, _ := h.rows.Get([]byte(store.StoreIdentityKey))
	identity, _ := v.(store.KV)
	if mark := store.IncarnationOf(identity).Mark(); mark == "" || mark != ask.Store {
		return nil, false
	}
	return h.history.since(store.Revision(ask.At), ask.AtPlace)
}

func (h *Hub) subscribeLocked(s *stream, id int, t *topic) {
	s.mirrors[id] = t
	t.subs[sub{s, id}] = struct{}{}
}

// enterMirrorLocked has a mirror of a stream go on with a list of a topic.
func (h *Hub) enterMirrorLocked(s *stream, id int, t *topic, since string) {
	h.subscribeLocked(s, id, t)
	if t.grade == (Grade{}) {
		h.pushLocked(s, item{id: id, line: withheldLine})
		return
	}
	h.counts.Lists++
	h.pushLocked(s, item{id: id, list: h.rows, of: t, rev: h.rev, place: h.place, since: since})
}

var withheldLine = line(api.MirrorMessage{Withheld: true})

// Clients are some clients of a hub, by name.
type Clients struct {
	All   bool
	Names []string // unless All
}

// Regrade has the mirrors of some clients follow what these may read now: a mirror whose
// grade changed gets a new list, or a message that its rows are withheld.
func (h *Hub) Regrade(clients Clients) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.regradeLocked(clients)
}

func (h *Hub) regradeLocked(clients Clients) {
	if h.rows == nil {
		return
	}
	names := clients.Names
	if clients.All {
		names = slices.Collect(maps.Keys(h.named))
	}
	for _, who := range names {
		for _, s := range h.named[who] {
			for id, was := range s.mirrors {
				grade, err := h.access.Grade(who, was.prefixes)
				if err != nil || grade == was.grade {
					continue
				}
				now := h.topicLocked(was.prefixes, was.commits, grade)
				h.unsubscribeLocked(was, sub{s, id})
				h.enterMirrorLocked(s, id, now, "")
			}
		}
	}
}

func bytesOf(prefixes []string) (n int) {
	for _, p := range prefixes {
		n += len(p)
	}
	return n
}

// enterLocked enters a stream. Of a client that has too many the oldest one ends.
func (h *Hub) enterLocked(s *stream) {
	h.streams[s] = struct{}{}
	if s.who == "" {
		return
	}
	if of := h.named[s.who]; len(of) >= maxStreams {
		of[len(of)-maxStreams].endLocked("cut off: this host has begun newer streams")
	}
	h.named[s.who] = append(h.named[s.who], s)
}

func (h *Hub) forgetLocked(s *stream) {
	delete(h.streams, s)
	if h.named[s.who] = slices.DeleteFunc(h.named[s.who], func(o *stream) bool { return o == s }); len(h.named[s.who]) == 0 {
		delete(h.named, s.who)
	}
}

// topicLocked returns the topic of who asks for the same, and may read the same.
func (h *Hub) topicLocked(prefixes []string, commits bool, grade Grade) *topic {
	key := grade.Name + "\x00" + strings.Join(prefixes, "\x00")
	if commits {
		key += "\x00commits"
	}
	t := h.topics[key]
	if t != nil {
		return t
	}
	t = &topic{key: key, prefixes: prefixes, commits: commits, grade: grade, subs: map[sub]struct{}{}}
	h.topics[key] = t
	if grade == (Grade{}) {
		return t
	}
	if commits {
		h.interested[t] = struct{}{}
	}
	for _, p := range prefixes {
		h.at[p] = append(h.at[p], t)
		h.lengths[len(p)]++
	}
	return t
}

// leaveLocked ends a mirror.
func (h *Hub) leaveLocked(s *stream, id int) {
	t := s.mirrors[id]
	if t == nil {
		return
	}
	delete(s.mirrors, id)
	s.asked -= bytesOf(t.prefixes)
	h.unsubscribeLocked(t, sub{s, id})
}

func (h *Hub) unsubscribeLocked(t *topic, of sub) {
	delete(t.subs, of)
	if len(t.subs) > 0 {
		return
	}
	delete(h.topics, t.key)
	delete(h.interested, t)
	if t.grade == (Grade{}) {
		return
	}
	for _, p := range t.prefixes {
		if h.at[p] = slices.DeleteFunc(h.at[p], func(o *topic) bool { return o == t }); len(h.at[p]) == 0 {
			delete(h.at, p)
		}
		if h.lengths[len(p)]--; h.lengths[len(p)] == 0 {
			delete(h.lengths, len(p))
		}
	}
}
