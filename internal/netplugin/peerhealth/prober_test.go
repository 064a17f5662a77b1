package peerhealth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/model"
)

// world is a Prober's input and its hosts: h1 to hN, which answer and send heartbeats,
// unless it says otherwise.
type world struct {
	t  *testing.T
	mu sync.Mutex

	peers       []Peer
	many        bool
	dead        map[netip.Addr]bool
	broken      bool // this host cannot ask
	asked       map[netip.Addr]int
	unreachable map[model.HostName]bool
	changes     waiting.Changes
	log         bytes.Buffer
	prober      *Prober
	remembered  map[model.HostName]netip.Addr // as Remember was told last
}

// within runs do with a Prober of a world of n hosts, which has asked all of them once.
func within(t *testing.T, n int, do func(w *world)) {
	t.Helper()
	withinOf(t, n, func(*world) map[model.HostName]netip.Addr { return nil }, do)
}

// withinOf is within a world that is prepared before; what that returns has answered a
// former run.
func withinOf(t *testing.T, n int, prepare func(w *world) map[model.HostName]netip.Addr, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dead: map[netip.Addr]bool{}, asked: map[netip.Addr]int{}, unreachable: map[model.HostName]bool{}}
		for i := range n {
			w.peers = append(w.peers, Peer{Name: model.HostName(fmt.Sprint("h", i+1)), Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
		}
		former := prepare(w)
		w.prober = New(Config{
			Cluster: w, Ask: w.ask, Answered: former, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.prober.Run(ctx) })
		w.passes(time.Duration(n+1) * firstShare)
		do(w)
		cancel()
		running.Wait()
	})
}

// Peers implements Cluster.
func (w *world) Peers() (peers []Peer, many bool, changed <-chan struct{}) {
	changed = w.changes.Next()
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Peer(nil), w.peers...), w.many, changed
}

// SetUnreachable implements Cluster.
func (w *world) SetUnreachable(name model.HostName, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unreachable[name] == yes {
		w.t.Errorf("told twice that %s is silent: %v", name, yes)
	}
	w.unreachable[name] = yes
}

// Remember implements Cluster.
func (w *world) Remember(answered map[model.HostName]netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remembered = answered
}

func (w *world) ask(ctx context.Context, at netip.Addr) (bool, error) {
	w.mu.Lock()
	w.asked[at]++
	dead, broken := w.dead[at], w.broken
	w.mu.Unlock()
	if broken {
		return false, errors.New("no such interface")
	}
	if dead {
		_ = waiting.Pause(ctx, 2*patience)
	}
	return !dead, nil
}

// passes has time pass.
func (w *world) passes(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// is changes the world.
func (w *world) is(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.changes.Notify()
	synctest.Wait()
}

// probes returns how often a host was asked since the last call.
func (w *world) probes(i int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.asked[w.peers[i].Addr]
	delete(w.asked, w.peers[i].Addr)
	return n
}

func (w *world) isUnreachable(name model.HostName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unreachable[name]
}

func (w *world) wants(when string, silent ...model.HostName) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, yes := range w.unreachable {
		if yes {
			n++
		}
	}
	for _, name := range silent {
		if !w.unreachable[name] {
			w.t.Errorf("%s: %s is not silent", when, name)
		}
	}
	if n != len(silent) {
		w.t.Errorf("%s: silent are %v, want %v", when, w.unreachable, silent)
	}
	if _, _, told := w.prober.States(); told != n {
		w.t.Errorf("%s: States counts %d silent hosts of %d", when, told, n)
	}
}

// TestThreeFailedProbesMeanUnreachable: a host that is away and fails three probes is silent; one answer takes
// it back, and so does a netmaster that hears it.
func TestThreeFailedProbesMeanUnreachable(t *testing.T) {
	within(t, 4, func(w *world) {
		at := w.peers[0].Addr
		if n := w.probes(0); n != 1 {
			t.Errorf("asked %d times at first", n)
		}
		w.is(func() { w.dead[at] = true })
		w.passes(24 * time.Hour)
		w.wants("nobody is away")
		if n := w.probes(0); n != 0 {
			t.Errorf("nobody is away, and it was asked %d times", n)
		}

		w.is(func() { w.peers[0].Away, w.dead[at] = true, false })
		w.passes(time.Minute)
		w.wants("away, and it answers")
		if n := w.probes(0); n < 20 || n > 40 {
			t.Errorf("asked %d times in a minute", n)
		}
		w.probes(0)
		w.is(func() { w.dead[at] = true })
		for w.passes(time.Second / 10); !w.isUnreachable("h1"); w.passes(time.Second / 10) {
		}
		// One may be under way that is answered yet, or begin before the last has failed.
		if n := w.probes(0); n < failures || n > failures+1 || failures != 3 {
			t.Errorf("silent after %d probes", n)
		}
		w.is(func() { w.dead[at] = false })
		w.passes(2 * every)
		w.is(func() { w.dead[at] = true })
		w.passes(2 * 2 * patience)
		w.wants("it has failed twice at most")
		w.passes(5 * every)
		w.wants("it has failed three times", "h1")
		w.is(func() { w.dead[at] = false })
		w.passes(2 * every)
		w.wants("it answers again")
		w.is(func() { w.dead[at] = true })
		w.passes(10 * every)
		w.wants("it is dead again", "h1")
		w.is(func() { w.peers[0].Away = false })
		w.wants("netmasters hear of it")
		w.is(func() { w.peers[0].Away = true })
		w.passes(10 * every)
		w.wants("it is away again", "h1")
		w.is(func() { w.peers[0].Addr = netip.MustParseAddr("10.9.9.9") })
		w.wants("it has another address")
		w.passes(20 * every)
		w.is(func() { w.dead[w.peers[0].Addr] = true })
		w.passes(10 * every)
		w.wants("it is dead there", "h1")
		w.is(func() { w.peers = w.peers[1:] })
		w.wants("nobody knows it any more")
		if text := w.log.String(); strings.Count(text, "answers no probes either") != 5 || strings.Count(text, "a host answers again") != 5 {
			t.Errorf("told:\n%s", text)
		}
	})
}

// TestNothingIsConcludedOfUnknownHosts: not of a host that has never answered, nor while more than half
// are away, nor while this host cannot ask.
func TestNothingIsConcludedOfUnknownHosts(t *testing.T) {
	within(t, 4, func(w *world) {
		one, two := w.peers[0].Addr, w.peers[1].Addr
		w.is(func() { w.peers[0].Away, w.dead[one] = true, true })
		w.passes(10 * every)
		w.wants("one is dead", "h1")
		w.is(func() { w.peers[1].Away, w.dead[two], w.many = true, true, true })
		w.passes(time.Hour)
		w.wants("too many are away", "h1")
		w.is(func() { w.dead[one] = false })
		w.passes(10 * every)
		w.wants("too many are away, and the first answers")
		w.is(func() { w.many, w.broken, w.dead[one] = false, true, true })
		w.passes(time.Hour)
		w.wants("this host cannot ask")
		w.is(func() { w.broken = false })
		w.passes(10 * every)
		w.wants("it can again", "h1", "h2")
		if text := w.log.String(); strings.Count(text, "more than half of the hosts are away") != 1 {
			t.Errorf("told:\n%s", text)
		}
	})
	within(t, 0, func(w *world) {
		mute := Peer{Name: "mute", Addr: netip.MustParseAddr("10.1.1.1")}
		w.is(func() { w.peers, w.dead[mute.Addr] = []Peer{mute}, true })
		w.passes(time.Minute)
		w.is(func() { w.peers[0].Away = true })
		w.passes(2 * time.Hour)
		w.wants("it has never answered")
		if _, unanswered, _ := w.prober.States(); unanswered != 1 {
			t.Errorf("%d unanswered", unanswered)
		}
		w.is(func() { w.dead[mute.Addr] = false })
		w.passes(2 * firstRetry)
		w.is(func() { w.dead[mute.Addr] = true })
		w.passes(time.Minute)
		w.wants("it has answered once", "mute")
	})
}

// TestProbesAreLimited: who is away is asked less often by each host the more there are, so that all
// together ask a hundred times a second at most; and who begins asks ten hosts a second.
func TestProbesAreLimited(t *testing.T) {
	const n = 999
	within(t, n, func(w *world) {
		total := 0
		for i := range n {
			total += w.probes(i)
		}
		if total != n {
			t.Errorf("%d first probes of %d hosts", total, n)
		}
		w.is(func() { w.peers[0].Away, w.dead[w.peers[0].Addr] = true, true })
		w.passes(10 * time.Minute)
		w.wants("it is dead", "h1")
		if got := w.probes(0); got < 50 || got > 70 {
			t.Errorf("one of %d hosts asks %d times in 10 minutes, want some 60", n+1, got)
		}
	})
	synctest.Test(t, func(t *testing.T) { // they do not all ask at once
		var first []time.Duration
		for range 50 {
			begun := time.Now()
			p := New(Config{Log: slog.New(slog.DiscardHandler)})
			p.peers["h"] = &peer{Peer: Peer{Name: "h", Away: true}, answered: true}
			first = append(first, p.ask(t.Context(), begun).Sub(begun))
		}
		early := 0
		for _, d := range first {
			if d < every/2 {
				early++
			}
		}
		if early < 5 || early > 45 {
			t.Errorf("%d of 50 ask within the first half: %v", early, first)
		}
	})
}
