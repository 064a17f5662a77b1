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
		r.hub.Apply(b, nil)
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

func newAgent(st *memory.Store, replicas map[string]*replica, change func(*Config)) *agent {
	cfg := Config{
		Store: st, Log: slog.New(slog.DiscardHandler), Serves: []string{state},
		Hubs:     func(context.Context) []string { return slices.Collect(maps.Keys(replicas)) },
		Open:     func(ctx context.Context, hub string) (io.ReadWriteCloser, error) { return replicas[hub].open(ctx) },
		Patience: patience, AnswerFor: patience, TryFor: patience, BackAfter: 20 * time.Millisecond, Lasting: time.Nanosecond,
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

// A mirror that has to go on from the store itself tells there, too, that the store went
// back, as far as who mirrors knew it.
func TestOlder(t *testing.T) {
	base := memory.NewWith(memory.Consul)
	backup := base.Data()
	a := newAgent(base.Client(), nil, nil)
	t.Cleanup(func() { _ = a.Close() })
	rev := put(t, base, "x/n", "1")
	mirrors := func(since string) store.Batch {
		t.Helper()
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var first store.Batch
		_ = a.Mirror(ctx, []string{state}, func(b store.Batch) error { // its error is ctx's end
			first = b
			end()
			return nil
		}, store.Since(func() string { return since }))
		return first
	}
	known := mirrors("")
	if known.Older || known.Revision != rev || known.Place == "" {
		t.Fatalf("the first list: %+v", known)
	}
	base.Replace(backup, 1000)
	if b := mirrors(known.Place); !b.Older || b.Revision <= rev {
		t.Errorf("an older state, at %d after %d: %+v", b.Revision, rev, b)
	}
	if b := mirrors(""); b.Older {
		t.Errorf("without knowing of it: %+v", b)
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
			s.changes.Tell()
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

// The end of a netmaster costs nothing: another one goes on, and after the last one the
// store. A mirror gets each time what it has missed, and no second snapshot.
func TestHubsDie(t *testing.T) {
	base := memory.New()
	replicas := map[string]*replica{"a": newReplica(t, base), "b": newReplica(t, base)}
	a := newAgent(base.Client(), replicas, nil)
	t.Cleanup(func() { _ = a.Close() })
	want := map[string]string{}
	write := func(key, value string) store.Revision {
		want[state+key] = value
		return put(t, base, key, value)
	}
	rev := write("x/0", "0")
	s := watch(t, a, state+"x/")
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, s.reaches(t, rev)); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	check("at first")
	first := a.From().Hub
	if first == "" {
		t.Fatal("it mirrors from the store while two netmasters relay")
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
		check(dies + " died")
		if from := a.From().Hub; from == first || dies == "all" && from != "" {
			t.Errorf("%s died, and it mirrors from %q", dies, from)
		}
	}
	replicas["a"].cut(false)
	eventually(t, "a netmaster is followed again", func() bool { return a.From().Hub == "a" })
	rev = write("x/last", "1")
	check("back at a netmaster")
	if s.snapshots != 1 {
		t.Errorf("%d snapshots", s.snapshots)
	}
}

// A netmaster that hears the store no more is left, though its connection stands.
func TestStandsStill(t *testing.T) {
	base := memory.New()
	r := newReplica(t, base)
	a := newAgent(base.Client(), map[string]*replica{"r": r}, func(c *Config) { c.Patience, c.BackAfter = 300*time.Millisecond, time.Hour })
	t.Cleanup(func() { _ = a.Close() })
	s := watch(t, a, state+"x/")
	s.reaches(t, put(t, base, "x/1", "1"))
	if a.From().Hub != "r" {
		t.Fatal("it does not mirror from the netmaster")
	}
	r.store.Pause(true) // the connection lives, and nothing comes
	if diff := cmp.Diff(map[string]string{state + "x/1": "1", state + "x/2": "2"}, s.reaches(t, put(t, base, "x/2", "2"))); diff != "" {
		t.Error(diff)
	}
	if from := a.From(); from.Hub != "" || from.Why == "" {
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
