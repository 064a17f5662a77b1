//go:build integration

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/storetest"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

var moves = flag.Int("moves", 0, "how often the netmaster that leads is killed, stopped in order and made to stand still, each, in TestLeaderTasksMoveInTime; 0 = it is skipped")

// What is wanted: the leader's tasks go on elsewhere in that time after its end.
const (
	afterDeath = 5 * time.Second
	afterStop  = time.Second
)

// TestLeaderTasksMoveInTime measures how long the leader's tasks rest when the netmaster that leads
// is killed, stands still or is stopped in order, again and again, of three that are
// processes, on -store etcd (three servers), consul, consul3 or members. The task is one that
// the leader does at once: a tenant without a router gets one. It is done once each
// time, in the term of the one that leads then, and not again by one that led before
// and wakes up.
func TestLeaderTasksMoveInTime(t *testing.T) {
	if *moves == 0 {
		t.Skip("it takes minutes: make test-cluster MOVES=20")
	}
	testenv.Need(t)
	w, open := threePrograms(t)
	w.start(false)
	w.eventually("all netmasters answer", func() error { return w.ready(t.Context()) })
	seen := &terms{given: map[model.TenantName][]store.Revision{}, at: map[model.TenantName]time.Time{}, term: map[model.TenantName]store.Revision{}}
	ways := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	for _, st := range ways {
		t.Cleanup(func() { _ = st.Close() })
		following.Go(func() {
			if err := st.Mirror(ctx, []string{tables.TenantsScope, cluster.LeaderKey}, seen.apply); ctx.Err() == nil {
				t.Errorf("mirror: %v", err)
			}
		})
	}
	defer following.Wait()
	defer cancel()

	for _, way := range []struct {
		name string
		want time.Duration
		end  func(s *seat) (undo func())
	}{
		{"killed", afterDeath, func(s *seat) func() {
			m, _ := s.now()
			m.kill()
			return func() { w.sit(s) }
		}},
		{"stands still", afterDeath, func(s *seat) func() {
			m, _ := s.now()
			return m.(*masterProcess).pause()
		}},
		{"stopped in order", afterStop, func(s *seat) func() { // which takes longer than it leads
			m, _ := s.now()
			w.dying.Go(m.stop)
			return func() {
				w.dying.Wait()
				w.sit(s)
			}
		}},
	} {
		var took []time.Duration
		for n := range *moves {
			s := leads(w)
			w.eventually("the term is known", func() error {
				if seen.leader() == 0 {
					return errors.New("no term")
				}
				return nil
			})
			begin, before := time.Now(), seen.leader()
			undo := way.end(s)
			if way.want == afterStop {
				w.eventually("it gives its term up", func() error {
					if seen.leader() == before {
						return errors.New("not yet")
					}
					return nil
				})
			}
			name := model.TenantName(fmt.Sprintf("%s-%d", strings.Fields(way.name)[0], n))
			withoutRouter(t, ways, name)
			w.eventually("the task is done", func() error { return seen.done(name) })
			at, term := seen.first(name)
			took = append(took, at.Sub(begin))
			if term == 0 || term == before {
				t.Errorf("%s %d: the task was done by nobody who leads now", way.name, n)
			}
			undo()
			w.eventually("all netmasters answer", func() error { return w.ready(t.Context()) })
			name += "-later"
			withoutRouter(t, ways, name)
			w.eventually("the task is done again", func() error { return seen.done(name) })
		}
		slices.Sort(took)
		t.Logf("%s on %s, %d times: median %.2f s, longest %.2f s", way.name, *kindOf, len(took), took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
		if took[len(took)-1] > way.want {
			t.Errorf("%s: the leader's tasks rested %s, want %s at most: %v", way.name, took[len(took)-1], way.want, took)
		}
	}
	for _, wrong := range seen.twice() {
		t.Error(wrong)
	}
}

// withoutRouter makes a tenant as those of before there were routers, by whichever
// way to the store is the first.
func withoutRouter(t *testing.T, ways []store.Store, name model.TenantName) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results := make(chan error, len(ways))
	var wg sync.WaitGroup
	for _, st := range ways {
		wg.Go(func() {
			results <- again(ctx, func() error {
				_, err := st.Update(ctx, func(tx store.Tx) error { return tables.Tenants.Create(tx, model.Tenant{Name: name}) })
				if errors.Is(err, model.ErrExists) {
					return nil
				}
				return err
			})
		})
	}
	var err error
	for range ways {
		if err = <-results; err == nil {
			cancel()
			wg.Wait()
			return
		}
	}
	t.Fatal(err)
}

// leads is the seat of the netmaster that leads, once no other says so: one that stood
// still does for a moment.
func leads(w *world) (leader *seat) {
	w.t.Helper()
	w.eventually("a netmaster leads", func() error {
		leader = nil
		for _, s := range w.seats {
			c, err := api.NewClient(s.url(), api.WithTimeout(clientPatience))
			if err != nil {
				return err
			}
			i, err := c.Info(w.t.Context())
			c.Close()
			switch {
			case err != nil:
				return err
			case i.CurrentState != "leader":
			case leader != nil:
				return errors.New("two say that they do")
			default:
				leader = s
			}
		}
		if leader == nil {
			return errors.New("none does")
		}
		return nil
	})
	return leader
}

// terms is what mirrors, each by a way of its own, show of the leaders and of their
// task: the first one counts.
type terms struct {
	mu     sync.Mutex
	lock   store.Revision                        // when the present leader's term began; 0 = no leader
	lockAt store.Revision                        // when that was written
	given  map[model.TenantName][]store.Revision // when tenants got a router
	at     map[model.TenantName]time.Time        // when the first of it was seen
	term   map[model.TenantName]store.Revision   // in whose term
}

func (s *terms) apply(b store.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range b.Events {
		if e.KV.Key == cluster.LeaderKey {
			s.lead(e)
			continue
		}
		row, err := tables.Decode(e)
		if err != nil {
			return err
		}
		x, ok := row.Value.(model.Tenant)
		if !ok || e.Deleted() || x.Router == 0 {
			continue
		}
		if s.given[x.Name] == nil {
			s.at[x.Name], s.term[x.Name] = time.Now(), s.lock
		}
		if !slices.Contains(s.given[x.Name], e.KV.Mod) {
			s.given[x.Name] = append(s.given[x.Name], e.KV.Mod)
		}
	}
	return nil
}

// lead enters that the lock was taken, or is gone.
func (s *terms) lead(e store.Event) {
	if e.KV.Mod > s.lockAt || e.Deleted() && e.KV.Mod >= s.lockAt {
		s.lockAt, s.lock = e.KV.Mod, e.KV.Create // 0 of one that is gone
	}
}

func (s *terms) leader() store.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock
}

func (s *terms) done(name model.TenantName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given[name] == nil {
		return fmt.Errorf("tenant %s has no router", name)
	}
	return nil
}

func (s *terms) first(name model.TenantName) (time.Time, store.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[name], s.term[name]
}

// twice tells what was done more than once.
func (s *terms) twice() (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if revs := s.given[name]; len(revs) > 1 {
			wrong = append(wrong, fmt.Sprintf("tenant %s got a router %d times: at revisions %v", name, len(revs), revs))
		}
	}
	return wrong
}

// threePrograms is a world of three netmasters as they are installed, not started
// yet; open makes a connection to each server of their store.
func threePrograms(t *testing.T) (w *world, open func(t *testing.T) []store.Store) {
	t.Helper()
	p := installed(t)
	var addresses []string
	switch *kindOf {
	case "members":
		m := newMembers(t, p, nil)
		return m.w, func(t *testing.T) (out []store.Store) {
			t.Helper()
			for n := range m.seats {
				out = append(out, openEtcd(t, m.at(n).etcd, false))
			}
			return out
		}
	case "etcd":
		p.flag = "--etcd-endpoints"
		for _, e := range threeEtcds(t) {
			e.start()
			addresses = append(addresses, e.address())
		}
		open = func(t *testing.T) (out []store.Store) {
			t.Helper()
			for _, address := range addresses {
				out = append(out, openEtcd(t, address, false))
			}
			return out
		}
	case "consul", "consul3":
		p.flag = "--consul-endpoints"
		if *kindOf == "consul3" {
			addresses = threeConsuls(t).addresses()
		} else {
			led := newConsulProcess(t)
			led.start()
			addresses = append(addresses, led.address())
		}
		open = func(t *testing.T) (out []store.Store) {
			t.Helper()
			for _, address := range addresses {
				out = append(out, openConsul(t, address, false))
			}
			return out
		}
	default:
		t.Fatalf("-store %s: want etcd, consul, consul3 or members", *kindOf)
	}
	w = newWorld(t, nil)
	w.begin = func(seat int) (netmaster, wire) { return p.at(seat, strings.Join(addresses, ",http://")), nil }
	return w, open
}

// installed is the program as it is, whose clock cannot be set.
func installed(t *testing.T) *program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netmaster")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../cmd/netmaster").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return &program{t: t, path: path, clocks: t.TempDir()}
}

// threeEtcds are the servers of one installed etcd, not started yet.
func threeEtcds(t *testing.T) (out []*process) {
	t.Helper()
	path, err := exec.LookPath("etcd")
	if err != nil {
		skipUnlessCI(t, "etcd is not installed: apt-get install etcd-server")
	}
	var clients, peers, all []string
	for n := range 3 {
		clients, peers = append(clients, "http://"+storetest.FreePort(t)), append(peers, "http://"+storetest.FreePort(t))
		all = append(all, fmt.Sprintf("s%d=%s", n, peers[n]))
	}
	for n := range 3 {
		out = append(out, newProcess(t, strings.TrimPrefix(clients[n], "http://"), path, "--name", fmt.Sprint("s", n), "--data-dir", t.TempDir(),
			"--listen-client-urls", clients[n], "--advertise-client-urls", clients[n],
			"--listen-peer-urls", peers[n], "--initial-advertise-peer-urls", peers[n], "--initial-cluster", strings.Join(all, ",")))
	}
	return out
}
