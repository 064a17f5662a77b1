package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// Keys of a session go when it is closed, at once and in one transaction; what
// was put over without it stays; a closed session takes no more keys.
func testSessions(t *testing.T, b *bench) {
	s, err := b.NewSession(b.ctx, b.TTL)
	if err != nil {
		t.Fatal(err)
	}
	put := func(pairs ...string) error {
		_, err := b.Update(b.ctx, func(tx store.Tx) error {
			for _, name := range pairs {
				tx.Put(key(name), []byte("1"), s)
			}
			return nil
		})
		return err
	}
	if err := put("s/a", "s/b", "s/freed"); err != nil {
		t.Fatal(err)
	}
	rev := b.put("s/freed", "mine")
	w := b.mirror(b.Store, []string{key("s/")})
	w.reached(rev)
	// The session outlives its TTL only if somebody refreshes the lease.
	timer := time.NewTimer(3 * b.TTL / 2)
	defer timer.Stop()
	select {
	case <-s.Done():
		t.Fatal("the session was lost")
	case <-timer.C:
	}
	if b.value("s/a") != "1" {
		t.Fatal("a key of a live session went")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("closed, but not done")
	}
	batches := w.until("deletions", func(batches []store.Batch, _ []error) bool {
		n := 0
		for _, batch := range batches {
			for _, e := range batch.Events {
				if e.Deleted() {
					n++
				}
			}
		}
		return n == 2
	})
	if diff := cmp.Diff("-s/a(1) -s/b(1)", render(batches)[len(batches)-1]); diff != "" {
		t.Error(diff)
	}
	if got := b.value("s/freed"); got != "mine" {
		t.Errorf("a key put over without the session: %q", got)
	}
	if err := put("s/late"); !errors.Is(err, store.ErrSessionLost) {
		t.Errorf("put with a closed session: %v", err)
	}
	if got := b.value("s/late"); got != "" {
		t.Errorf("it was put all the same: %q", got)
	}
}

// Keys of a holder that stops refreshing go after the TTL, not before.
func testSessionAbandoned(t *testing.T, b *bench) {
	ctx, abandon := context.WithCancel(b.ctx)
	s, err := b.NewSession(ctx, b.TTL)
	if err != nil {
		t.Fatal(err)
	}
	rev := b.update(func(tx store.Tx) error { return tx.Create(key("s/x"), []byte("1"), s) })
	w := b.mirror(b.Store, []string{key("s/")})
	w.reached(rev)
	abandon()
	began := time.Now()
	select {
	case <-s.Done():
	case <-b.ctx.Done():
		t.Fatal("the context ended, but the session is not done")
	}
	w.until("expiry", func(batches []store.Batch, _ []error) bool {
		last := batches[len(batches)-1].Events
		return len(last) == 1 && last[0].Deleted()
	})
	if took := time.Since(began); took < b.TTL/4 {
		t.Errorf("the key went after %s already", took)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close after expiry: %v", err)
	}
}

// terms records who led when.
type terms struct {
	mu      sync.Mutex
	leading int
	log     []string
	fences  []store.Fence
	changed chan struct{}
}

func (l *terms) note(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *terms) until(ctx context.Context, t *testing.T, what string, cond func() bool) {
	t.Helper()
	for {
		l.mu.Lock()
		ok, changed := cond(), l.changed
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("election: %s did not happen: %v", what, l.log)
		}
	}
}

// Of three candidates one leads at a time; when it stops, its lock is deleted,
// or its term is over, another one does; the lock shows who.
func testElection(t *testing.T, b *bench) {
	l := &terms{changed: make(chan struct{})}
	stop := map[string]context.CancelFunc{}
	ended := map[string]chan error{}
	resign := make(chan struct{})
	for _, name := range []string{"one:1", "two:2", "three:3"} {
		ctx, cancel := context.WithCancel(b.ctx)
		end := make(chan error, 1)
		stop[name], ended[name] = cancel, end
		c := cluster.Candidate{
			Store: b.open(), Key: cluster.LeaderKey, Value: name, TTL: b.TTL,
			Lead: func(ctx context.Context, term store.Fence) error {
				l.note(func() { l.leading++; l.log = append(l.log, name); l.fences = append(l.fences, term) })
				defer l.note(func() { l.leading-- })
				select {
				case <-ctx.Done():
				case <-resign:
				}
				return nil
			},
		}
		go func() { end <- c.Run(ctx) }()
	}
	t.Cleanup(func() {
		for name, cancel := range stop {
			cancel()
			if err := <-ended[name]; !errors.Is(err, context.Canceled) {
				t.Errorf("%s ended with %v", name, err)
			}
		}
		if kv, _ := b.Get(context.Background(), cluster.LeaderKey); kv.Exists() {
			t.Errorf("all have stopped, but %s holds the lock", kv.Value)
		}
	})
	term := func(n int) string {
		t.Helper()
		var who string
		l.until(b.ctx, t, fmt.Sprintf("term %d", n), func() bool {
			if len(l.log) < n || l.leading != 1 {
				return false
			}
			who = l.log[n-1]
			return true
		})
		return who
	}
	first := term(1)
	if got, err := cluster.Leader(b.ctx, b, cluster.LeaderKey); err != nil || got != first {
		t.Errorf("the lock says %q, %v; %q leads", got, err, first)
	}
	stop[first]()
	second := term(2)
	if second == first {
		t.Errorf("%s leads after it stopped", first)
	}
	// Somebody deletes the lock by hand.
	b.update(func(tx store.Tx) error { tx.Delete(cluster.LeaderKey); return nil })
	term(3)
	resign <- struct{}{}
	term(4)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 1; i < len(l.fences); i++ {
		if l.fences[i].Create <= l.fences[i-1].Create {
			t.Errorf("fences do not grow: %v", l.fences)
		}
	}
}

// A write of a former leader fails, even before it knows that it is one; an
// error of Lead ends its candidacy.
func testElectionFence(t *testing.T, b *bench) {
	mine := errors.New("mine")
	c := cluster.Candidate{
		Store: b.Store, Key: cluster.LeaderKey, Value: "me:1", TTL: b.TTL,
		Lead: func(_ context.Context, term store.Fence) error {
			lead := func() error {
				_, err := b.Update(b.ctx, func(tx store.Tx) error {
					term.Require(tx)
					tx.Put(key("led"), nil, nil)
					return nil
				})
				return err
			}
			if err := lead(); err != nil {
				t.Errorf("while leading: %v", err)
			}
			return mine
		},
	}
	if err := c.Run(b.ctx); !errors.Is(err, mine) {
		t.Errorf("run: %v", err)
	}
	c.Lead = func(ctx context.Context, term store.Fence) error {
		b.update(func(tx store.Tx) error { tx.Put(cluster.LeaderKey, []byte("thief"), nil); return nil })
		b.update(func(tx store.Tx) error { tx.Delete(cluster.LeaderKey); return nil })
		if _, err := b.Update(b.ctx, func(tx store.Tx) error {
			term.Require(tx)
			tx.Put(key("led"), []byte("stale"), nil)
			return nil
		}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("after the term: %v", err)
		}
		<-ctx.Done() // the candidate notices by itself
		return mine
	}
	c.Lead = wrapOnce(c.Lead, mine)
	if err := c.Run(b.ctx); !errors.Is(err, mine) {
		t.Errorf("run: %v", err)
	}
}

// wrapOnce runs lead for the first term and ends the candidacy in the second.
func wrapOnce(lead func(context.Context, store.Fence) error, end error) func(context.Context, store.Fence) error {
	first := true
	return func(ctx context.Context, term store.Fence) error {
		if first {
			first = false
			return lead(ctx, term)
		}
		return end
	}
}

// Instances are listed and watched while they are registered, with the role
// they set last; a lost session is replaced.
func testRegistry(t *testing.T, b *bench) {
	netmaster := cluster.Service{ServiceName: "netmaster", Role: "follower", Version: "2.0", HostAddr: "10.0.0.1", Port: 9999, Hostname: "one"}
	ctx, stop := context.WithCancel(b.ctx)
	l := &terms{changed: make(chan struct{})}
	var seen [][]cluster.Service
	watched := make(chan error, 1)
	go func() {
		watched <- cluster.WatchServices(ctx, b.Store, "netmaster", func(s []cluster.Service) error {
			l.note(func() { seen = append(seen, s) })
			return nil
		})
	}()
	defer func() {
		stop()
		if err := <-watched; !errors.Is(err, context.Canceled) {
			t.Errorf("watch: %v", err)
		}
	}()
	sees := func(want ...cluster.Service) {
		t.Helper()
		l.until(b.ctx, t, fmt.Sprint(want), func() bool {
			return len(seen) > 0 && cmp.Equal(want, append([]cluster.Service(nil), seen[len(seen)-1]...))
		})
	}
	r, err := cluster.Register(b.ctx, b, netmaster, nil)
	if err != nil {
		t.Fatal(err)
	}
	netmaster.TTL = 10
	sees(netmaster)
	vtep, err := cluster.Register(b.ctx, b, cluster.Service{ServiceName: "netplugin.vtep", HostAddr: "fd00::1", Port: 4789}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetRole(b.ctx, "leader"); err != nil {
		t.Fatal(err)
	}
	netmaster.Role = "leader"
	sees(netmaster)
	all, err := cluster.Services(b.ctx, b, "")
	if err != nil || len(all) != 2 || all[1].ServiceName != "netplugin.vtep" {
		t.Errorf("all services: %v, %v", all, err)
	}
	kv, err := b.Get(b.ctx, "/contiv.io/service/netmaster/10.0.0.1:9999")
	want := `{"ServiceName":"netmaster","Role":"leader","Version":"2.0","TTL":10,"HostAddr":"10.0.0.1","Port":9999,"Hostname":"one"}`
	if diff := cmp.Diff(want, string(kv.Value)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if kv, err := b.Get(b.ctx, "/contiv.io/service/netplugin.vtep/[fd00::1]:4789"); err != nil || !kv.Exists() {
		t.Errorf("record of an IPv6 address: %v, %v", kv, err)
	}
	if err := vtep.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	sees()
	if _, err := cluster.Register(b.ctx, b, cluster.Service{ServiceName: "x", HostAddr: "10.0.0.1"}, nil); err == nil {
		t.Error("a service without a port was registered")
	}
}
