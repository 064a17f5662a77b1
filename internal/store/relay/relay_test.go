package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = time.Minute
	state    = store.Root + "state/"
)

// replica is a netmaster as far as it relays: a follower with its own connection to the
// store, and a hub.
type replica struct {
	t      *testing.T
	store  *memory.Store
	hub    *Hub
	asked  func() // before the store is asked how far it is; nil = nothing
	follow *store.Follower
	ctx    context.Context //nolint:containedctx // its own end
	serves sync.WaitGroup

	mu    sync.Mutex
	who   string // who opens streams
	away  bool
	conns map[net.Conn]struct{}
}

func newReplica(t *testing.T, base *memory.Store) *replica {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	r := &replica{t: t, store: base.Client(), ctx: ctx, conns: map[net.Conn]struct{}{}}
	r.follow = store.NewFollower(r.store, []string{state}, func(b store.Batch) error {
		r.hub.Apply(b, Clients{})
		return nil
	})
	r.hub = NewHub(r, []string{state}, Open{}, 50*time.Millisecond)
	r.serves.Go(func() { r.hub.Run(ctx) })
	r.serves.Go(func() { _ = r.follow.Run(ctx) }) // its error is ctx's end
	t.Cleanup(func() {
		r.cut(true)
		end()
		r.serves.Wait()
	})
	return r
}

// Rows, Older and Fresh are the follower's.
func (r *replica) Rows() ([]store.KV, store.Revision, string) { return r.follow.Rows() }

func (r *replica) Older(ctx context.Context, place string) (bool, error) {
	return r.follow.Older(ctx, place)
}

func (r *replica) Fresh(ctx context.Context) (store.Revision, error) {
	r.mu.Lock()
	asked := r.asked
	r.mu.Unlock()
	if asked != nil {
		asked()
	}
	return r.follow.Fresh(ctx)
}

// cut ends all streams, and has no new one begin while it is away.
func (r *replica) cut(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *replica) open(ctx context.Context) (io.ReadWriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, errors.New("nobody is there")
	}
	mine, theirs := net.Pipe()
	r.conns[mine] = struct{}{}
	who := r.who
	r.serves.Go(func() {
		_ = r.hub.Serve(r.ctx, who, theirs, func() { _ = theirs.SetReadDeadline(time.Unix(1, 0)) }, func(b []byte) error { // the client gets a message
			_, err := theirs.Write(b)
			return err
		})
		_ = theirs.Close()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, mine)
	})
	return mine, ctx.Err()
}

// agent is a connection to the store whose mirrors are relayed.
type agent struct {
	*memory.Store
	*Reader
	end func()
}

func (a *agent) Mirror(ctx context.Context, prefixes []string, fn func(store.Batch) error, opts ...store.MirrorOption) error {
	return a.Reader.Mirror(ctx, prefixes, fn, opts...)
}

func (a *agent) Close() error {
	a.end()
	return a.Store.Close()
}

// replicaHubs are replicas as the hubs of a Reader. mu, if there is one, guards them. known and
// guessed, if there are any, are where they are; onOpen, if there is one, is called with each
// that is opened.
type replicaHubs struct {
	mu             *sync.Mutex
	replicas       map[string]*replica
	known, guessed []string
	onOpen         func(hub string)
}

func (h replicaHubs) RelayURLs(context.Context) (known, guessed []string) {
	if h.known != nil {
		return h.known, h.guessed
	}
	if h.mu != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	return slices.Collect(maps.Keys(h.replicas)), nil
}

func (h replicaHubs) Relay(ctx context.Context, hub string) (io.ReadWriteCloser, error) {
	if h.onOpen != nil {
		h.onOpen(hub)
	}
	if h.mu != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	return h.replicas[hub].open(ctx)
}

func newAgent(st *memory.Store, replicas map[string]*replica, change func(*Config)) *agent {
	cfg := Config{
		Log:      slog.New(slog.DiscardHandler),
		Hubs:     replicaHubs{replicas: replicas},
		Patience: patience, AnswerFor: patience,
	}
	if change != nil {
		change(&cfg)
	}
	a := &agent{Store: st, Reader: NewReader(cfg)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	a.end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	return a
}

// Mirrors over a hub are as the store's own, also when all is away and comes back: the
// agent's ways, or the hub's way to the store.
func TestConformance(t *testing.T) {
	for _, hubToo := range []bool{false, true} {
		t.Run(fmt.Sprint("the hub loses the store: ", hubToo), func(t *testing.T) {
			storetest.RunMirrors(t, func(t *testing.T) storetest.Harness {
				t.Helper()
				base, bump := memory.New(), store.Revision(0)
				if !hubToo {
					base, bump = memory.NewWith(memory.Consul), 1000
				}
				r := newReplica(t, base)
				var mu sync.Mutex
				var clients []*memory.Store
				away := func(b bool) {
					mu.Lock()
					defer mu.Unlock()
					for _, c := range clients {
						c.Unavailable(b)
					}
					if hubToo {
						r.store.Unavailable(b)
					} else {
						r.cut(b)
					}
				}
				return storetest.Harness{
					Open: func(*testing.T) store.Store {
						mu.Lock()
						defer mu.Unlock()
						clients = append(clients, base.Client())
						return newAgent(clients[len(clients)-1], map[string]*replica{"r": r}, func(c *Config) {
							if hubToo {
								c.Patience = 500 * time.Millisecond
							}
						})
					},
					Direct:  func(*testing.T) store.Store { return base.Client() },
					Break:   func(*testing.T) { away(true) },
					Heal:    func(*testing.T) { away(false) },
					Compact: func(*testing.T) { base.Compact() },
					Backup: func(*testing.T) func() {
						data := base.Data()
						return func() { base.Replace(data, bump) }
					},
					Can:      base.Capabilities(),
					TTL:      200 * time.Millisecond,
					Patience: patience,
				}
			})
		})
	}
}

// seen is what a mirror was told, and what that makes.
type seen struct {
	mu        sync.Mutex
	now       map[string]string
	rev       store.Revision
	snapshots int
	changes   waiting.Changes
}

func watch(t *testing.T, st store.Reader, prefix string) *seen {
	t.Helper()
	s := &seen{now: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = st.Mirror(ctx, []string{prefix}, func(b store.Batch) error { // its error is ctx's end
			s.mu.Lock()
			defer s.mu.Unlock()
			if b.Snapshot {
				s.snapshots++
			}
			for _, e := range b.Events {
				if s.now[e.KV.Key] = string(e.KV.Value); e.Deleted() {
					delete(s.now, e.KV.Key)
				}
			}
			s.rev = b.Revision
			s.changes.Notify()
			return nil
		})
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s
}

// reaches waits until the mirror has reached a revision and returns what it knows then.
func (s *seen) reaches(t *testing.T, rev store.Revision) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var now map[string]string
	if err := s.changes.Until(ctx, func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		now = maps.Clone(s.now)
		return s.rev >= rev, nil
	}); err != nil {
		t.Fatalf("the mirror has not reached revision %d: it is at %d", rev, s.rev)
	}
	return now
}

func put(t *testing.T, st store.Store, pairs ...string) store.Revision {
	t.Helper()
	rev, err := st.Update(t.Context(), func(tx store.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			tx.Put(state+pairs[i], []byte(pairs[i+1]), nil)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func containsAll(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); {
		if time.Now().After(until) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		_ = waiting.Pause(t.Context(), 5*time.Millisecond) // the deadline tells
	}
}

// identify gives a store an identity, as every cluster's has: by it hosts go on elsewhere.
func identify(t *testing.T, st store.Store) {
	t.Helper()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		b, err := store.EncodeRecord(1, store.Incarnation{ID: "a", Generation: 1})
		tx.Put(store.StoreIdentityKey, b, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestDyingHubCausesNoList: the end of a netmaster costs no list while there is another: that one goes on
// with what the mirror has missed. It does so after all have been away, too.
func TestDyingHubCausesNoList(t *testing.T) {
	for name, base := range map[string]*memory.Store{"with revisions": memory.New(), "with a journal": memory.NewWith(memory.Consul)} {
		t.Run(name, func(t *testing.T) { hubsDie(t, base) })
	}
}

func hubsDie(t *testing.T, base *memory.Store) {
	t.Helper()
	identify(t, base)
	replicas := map[string]*replica{"a": newReplica(t, base), "b": newReplica(t, base)}
	a := newAgent(base.Client(), replicas, nil)
	t.Cleanup(func() { _ = a.Close() })
	want := map[string]string{}
	write := func(key, value string) store.Revision {
		want[state+key] = value
		return put(t, base, key, value)
	}
	rev := write("x/0", "0")
	followed := func() {
		t.Helper()
		eventually(t, "both netmasters have followed that", func() bool {
			for _, r := range replicas {
				r.hub.mu.Lock()
				at := r.hub.history.rev
				r.hub.mu.Unlock()
				if at < rev {
					return false
				}
			}
			return true
		})
	}
	followed() // each knows what happens from here on, and no mirror is older
	s, quiet := watch(t, a, state+"x/"), watch(t, a, state+"quiet/")
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, s.reaches(t, rev)); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	check("at first")
	quiet.reaches(t, 1)
	first := a.From().Hub
	rev = write("x/more", "1")
	followed()
	lists := func() (n int) {
		for _, r := range replicas {
			n += r.hub.Stats().Lists
		}
		return n
	}
	if n := lists(); n != 2 {
		t.Errorf("%d lists for two mirrors", n)
	}
	for _, dies := range []string{first, "all"} {
		for name, r := range replicas {
			if name == dies || dies == "all" {
				r.cut(true)
			}
		}
		for i := range 20 {
			rev = write(fmt.Sprintf("x/%s-%d", dies, i), "1")
		}
		if dies == "all" {
			eventually(t, "none is followed", func() bool { return a.From().Hub == "" && a.From().Why != "" })
			replicas[first].cut(false)
		}
		check(dies + " died")
		if from := a.From().Hub; (from == first) != (dies == "all") {
			t.Errorf("%s died, and it mirrors from %q", dies, from)
		}
	}
	if n := lists(); n != 2 || s.snapshots != 1 {
		t.Errorf("%d lists for two mirrors, %d snapshots", n, s.snapshots)
	}
}

// TestStaleHubIsLeftForAnother: a netmaster that lives and hears the store no more is left
// once another one hears it. Alone it is not left, and its mirrors say so.
func TestStaleHubIsLeftForAnother(t *testing.T) {
	base := memory.New()
	identify(t, base)
	r := newReplica(t, base)
	replicas := map[string]*replica{"r": r}
	var mu sync.Mutex
	a := newAgent(base.Client(), replicas, func(c *Config) {
		c.Patience = 300 * time.Millisecond
		c.Hubs = replicaHubs{mu: &mu, replicas: replicas}
	})
	t.Cleanup(func() { _ = a.Close() })
	told := waiting.Value[error]{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = a.Mirror(ctx, []string{state + "y/"}, func(store.Batch) error { return nil }, store.OnState(told.Set)) // its error is ctx's end
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	s := watch(t, a, state+"x/")
	s.reaches(t, put(t, base, "x/1", "1"))
	r.store.Pause(true) // the connection lives, and nothing comes
	rev := put(t, base, "x/2", "2")
	if err := told.Until(t.Context(), func(err error) bool { return errors.Is(err, errStale) }); err != nil {
		t.Fatal(err)
	}
	if from := a.From(); from.Hub != "r" || from.Moves != 1 {
		t.Errorf("the only netmaster was left: %+v", from)
	}
	other := newReplica(t, base)
	mu.Lock()
	replicas["other"] = other
	mu.Unlock()
	if diff := cmp.Diff(map[string]string{state + "x/1": "1", state + "x/2": "2"}, s.reaches(t, rev)); diff != "" {
		t.Error(diff)
	}
	if from := a.From(); from.Hub != "other" {
		t.Errorf("it mirrors from %+v", from)
	}
}

// A list holds what was committed before it was asked for, also of a netmaster that is
// behind: what its mirror gets late is waited for.
func TestListIsFresh(t *testing.T) {
	base := memory.New()
	r := newReplica(t, base)
	a := newAgent(base.Client(), map[string]*replica{"r": r}, nil)
	t.Cleanup(func() { _ = a.Close() })
	watch(t, a, state+"x/").reaches(t, put(t, base, "x/1", "1"))
	r.store.Pause(true)
	rev := put(t, base, "y/1", "1")
	r.mu.Lock()
	r.asked = func() { r.store.Pause(false) }
	r.mu.Unlock()
	s := watch(t, a, state+"y/")
	eventually(t, "a list", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.snapshots > 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rev < rev {
		t.Errorf("the list is of revision %d, and %d was committed before", s.rev, rev)
	}
}

// TestMirrorWithoutHubSaysSo: a mirror that begins while no netmaster is reachable reports why.
func TestMirrorWithoutHubSaysSo(t *testing.T) {
	r := newReplica(t, memory.New())
	r.cut(true)
	a := newAgent(memory.New(), map[string]*replica{"r": r}, nil)
	t.Cleanup(func() { _ = a.Close() })
	eventually(t, "no netmaster was found", func() bool { return a.From().Why != "" })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var told error
	_ = a.Mirror(ctx, []string{state}, func(store.Batch) error { return nil }, store.OnState(func(err error) { // its error is ctx's end
		told = err
		cancel()
	}))
	if told == nil || !containsAll(told.Error(), "no netmaster", "nobody is there") {
		t.Errorf("it reports %v", told)
	}
}
