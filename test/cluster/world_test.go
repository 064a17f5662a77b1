package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/store"
)

// wire is the connection of one participant to the store.
type wire interface {
	cut()
	// stall holds back what goes to the store and comes from it, or only the latter.
	stall(answersOnly bool)
	heal()
}

// storage is a store under test.
type storage interface {
	// connect makes a participant's connection, and what breaks it. A netmaster
	// also ends leases, where the store needs that.
	connect(t *testing.T, netmaster bool) (store.Store, wire)
	// direct is a connection that no fault of a wire breaks; it may be closed.
	direct(t *testing.T) store.Store
	// faults are those of the store itself.
	faults() []fault
}

// fault is something that goes wrong. do returns how it is put right, nil when it
// cannot go wrong now; ctx ends with the run.
type fault struct {
	name string
	do   func(ctx context.Context, chance *rand.Rand) (undo func())
}

// netmaster is one under test.
type netmaster interface {
	address() string // host:port of its API
	kill()           // at once
	stop()           // in order
}

// seat is the place of a netmaster, in which there is one after another.
type seat struct {
	n          int
	turn       sync.Mutex // held by the fault that is made here
	mu         sync.Mutex // guards the rest
	m          netmaster
	wire       wire
	clientLink *link // clients' way to it; nil = there is none but the direct one
	direct     string
}

func (s *seat) url() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clientLink != nil {
		return "http://" + s.clientLink.address
	}
	return "http://" + s.direct
}

func (s *seat) now() (netmaster, wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m, s.wire
}

// world is a cluster under test.
type world struct {
	t       *testing.T
	st      storage
	begin   func(seat int) (netmaster, wire) // starts a netmaster
	log     *slog.Logger
	seats   []*seat
	mutant  func(http.Handler) http.Handler // before each netmaster's API; nil = none
	between func(store.Store) store.Store   // each netmaster and the store; nil = nothing
	more    []fault
	dying   sync.WaitGroup
	longest time.Duration // that a fault lasts
	calm    time.Duration // between two, at most

	mu   sync.Mutex
	made map[string]int // faults, by name
}

func newWorld(t *testing.T, st storage) *world {
	t.Helper()
	w := &world{t: t, st: st, log: slog.New(slog.DiscardHandler), made: map[string]int{}, longest: 400 * time.Millisecond, calm: 400 * time.Millisecond}
	w.begin = w.inside
	return w
}

// start seats three netmasters, behind links if fronts says so.
func (w *world) start(fronts bool) {
	w.t.Helper()
	for n := range 3 {
		s := &seat{n: n}
		if fronts {
			s.clientLink = newLink(w.t, s.target)
		}
		w.seats = append(w.seats, s)
		w.sit(s)
	}
	w.t.Cleanup(func() {
		w.dying.Wait()
		for _, s := range w.seats {
			if m, _ := s.now(); m != nil {
				m.stop()
			}
		}
	})
}

func (s *seat) target() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.direct
}

// sit starts a netmaster in a seat.
func (w *world) sit(s *seat) {
	w.t.Helper()
	m, wire := w.begin(s.n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m, s.wire, s.direct = m, wire, m.address()
}

// inside starts a netmaster inside this process.
func (w *world) inside(n int) (netmaster, wire) {
	st, wire := w.st.connect(w.t, true)
	if w.between != nil {
		st = w.between(st)
	}
	return startMaster(w.t, st, "127.0.0.1:0", w.mutant, w.log.With("netmaster", n)), wire
}

func (w *world) urls() (out []string) {
	for _, s := range w.seats {
		out = append(out, s.url())
	}
	return out
}

// on makes a fault from something done to one seat; no other fault has the seat meanwhile.
func (w *world) on(name string, do func(s *seat, chance *rand.Rand) (undo func())) fault {
	return w.at(name, func(chance *rand.Rand) int { return chance.IntN(len(w.seats)) }, do)
}

// at is on with the seat that which says.
func (w *world) at(name string, which func(chance *rand.Rand) int, do func(s *seat, chance *rand.Rand) (undo func())) fault {
	return fault{name, func(_ context.Context, chance *rand.Rand) func() {
		s := w.seats[which(chance)]
		if !s.turn.TryLock() {
			return nil
		}
		undo := do(s, chance)
		return func() {
			undo()
			s.turn.Unlock()
		}
	}}
}

// masterFaults are what goes wrong with netmasters, and on their ways to the store
// and to clients.
func (w *world) masterFaults() []fault {
	on := func(name string, do func(s *seat) (undo func())) fault {
		return w.on(name, func(s *seat, _ *rand.Rand) func() { return do(s) })
	}
	ends := func(s *seat, end func(m netmaster)) (undo func()) {
		m, wire := s.now()
		if s.clientLink != nil {
			s.clientLink.cut()
		}
		w.dying.Go(func() {
			end(m)
			wire.cut()
		})
		return func() {
			w.sit(s)
			if s.clientLink != nil {
				s.clientLink.heal()
			}
		}
	}
	out := []fault{
		on("a netmaster is killed", func(s *seat) func() {
			_, wire := s.now()
			wire.cut()
			return ends(s, netmaster.kill)
		}),
		on("a netmaster is stopped", func(s *seat) func() { return ends(s, netmaster.stop) }),
		on("a netmaster loses the store", func(s *seat) func() {
			_, wire := s.now()
			wire.cut()
			return wire.heal
		}),
		on("a netmaster waits for the store", func(s *seat) func() {
			_, wire := s.now()
			wire.stall(false)
			return wire.heal
		}),
		on("a netmaster hears no answer of the store", func(s *seat) func() {
			_, wire := s.now()
			wire.stall(true)
			return wire.heal
		}),
	}
	if w.seats[0].clientLink == nil {
		return out
	}
	return append(out,
		on("a netmaster is cut off from clients", func(s *seat) func() {
			s.clientLink.cut()
			return s.clientLink.heal
		}),
		on("a netmaster's answers do not arrive", func(s *seat) func() {
			s.clientLink.stall(true)
			return s.clientLink.heal
		}),
		on("a netmaster is paused", func(s *seat) func() {
			_, wire := s.now()
			wire.stall(false)
			s.clientLink.stall(false)
			return func() {
				wire.heal()
				s.clientLink.heal()
			}
		}),
	)
}

// goWrong makes faults until ctx ends, two at a time, as the seed has them, and
// puts all right before it returns.
func (w *world) goWrong(ctx context.Context, seed uint64) {
	all := append(append(w.masterFaults(), w.st.faults()...), w.more...)
	var running sync.WaitGroup
	for stream := range uint64(2) {
		running.Go(func() {
			chance := rand.New(rand.NewPCG(seed, 1000+stream)) //nolint:gosec // a test's
			for ctx.Err() == nil {
				f := all[chance.IntN(len(all))]
				lasts := time.Duration(chance.Int64N(int64(w.longest)))
				calm := time.Duration(chance.Int64N(int64(w.calm)))
				undo := f.do(ctx, chance)
				if undo == nil {
					_ = waiting.Pause(ctx, time.Millisecond) // the loop's condition tells
					continue
				}
				w.mu.Lock()
				w.made[f.name]++
				w.mu.Unlock()
				_ = waiting.Pause(ctx, lasts) // what ends early is put right all the same
				undo()
				_ = waiting.Pause(ctx, calm)
			}
		})
	}
	running.Wait()
}

// asksForAll is from how many requests on something has to be done of all that can be.
const asksForAll = 1600

// run has clients ask total times while faults are made, then judges. It returns
// what is wrong.
func (w *world) run(seed uint64, total int) (wrong []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Minute)
	defer cancel()
	w.eventually("netmasters take what all others need", func() error { return w.setUp(ctx) })

	book, following := newLedger(), sync.WaitGroup{}
	reading := w.st.direct(w.t)
	bookCtx, closeBook := context.WithCancel(ctx)
	following.Go(func() {
		if err := book.follow(bookCtx, reading); err != nil {
			w.t.Error(err)
		}
	})
	defer func() {
		closeBook()
		following.Wait()
		_ = reading.Close() // it was read
	}()

	c := newCrowd(w.t, seed, total, w.urls)
	faultsCtx, calm := context.WithCancel(ctx)
	var going sync.WaitGroup
	going.Go(func() { w.goWrong(faultsCtx, seed) })
	going.Go(func() { w.progress(faultsCtx, c, book, total) })
	c.ask(ctx, total)
	calm()
	going.Wait()
	w.dying.Wait()

	w.eventually("all netmasters answer", func() error { return w.ready(ctx) })
	if total >= asksForAll { // a slow machine, or store, was away too often
		for until := time.Now().Add(patience); len(c.barren()) > 0 && time.Now().Before(until); {
			c.seed++
			c.ask(ctx, clients*perGeneration/2)
		}
	}
	c.look(ctx)
	rev, err := reading.CommitRevision(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the ledger has all commits", func() error {
		if !book.reached(rev) {
			return fmt.Errorf("not yet %d", rev)
		}
		return nil
	})
	for _, o := range judge(w.t, c.objects, c.history) {
		wrong = append(wrong, "not linearizable: "+o)
	}
	wrong = append(wrong, twice(holdings(c.objects, c.history))...)
	rows, given := book.verdict()
	wrong = append(wrong, rows...)
	w.t.Logf("seed %d: %d requests of %d objects (%s); %d things given; faults: %v", seed, len(c.history), len(c.objects), c.sums(), given, w.made)
	if total >= asksForAll {
		for _, what := range c.barren() {
			w.t.Errorf("seed %d: nothing was done of %s", seed, what)
		}
	}
	return wrong
}

// progress tells how far it is, each ten seconds.
func (w *world) progress(ctx context.Context, c *crowd, book *ledger, total int) {
	for waiting.Pause(ctx, 10*time.Second) == nil {
		wrong, given := book.verdict()
		w.t.Logf("%d of %d requests, %d things given, wrong: %q", c.asked.Load(), total, given, wrong)
	}
}

// setUp makes what all other objects need.
func (w *world) setUp(ctx context.Context) error {
	for _, o := range setup() {
		if err := ask(ctx, http.MethodPut, w.seats[0].url()+o[0], o[1]); err != nil {
			return err
		}
	}
	return w.ready(ctx)
}

func (w *world) ready(ctx context.Context) error {
	for _, url := range w.urls() {
		if err := ask(ctx, http.MethodGet, url+"/readyz", ""); err != nil {
			return err
		}
	}
	return nil
}

func ask(ctx context.Context, method, url, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, url, resp.StatusCode, clip(b))
	}
	return err
}

// patience bounds a wait for what should come soon.
const patience = time.Minute

func (w *world) eventually(what string, f func() error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		if waiting.Pause(ctx, 20*time.Millisecond) != nil {
			w.t.Fatalf("%s: still not after %s: %v", what, patience, err)
		}
	}
}
