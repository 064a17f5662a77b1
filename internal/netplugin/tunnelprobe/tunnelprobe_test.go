package tunnelprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// world is a Prober and the hosts around it, within a bubble of time. It is its driver.
type world struct {
	*testing.T
	prober  *Prober
	changes waiting.Changes
	answers chan uint64

	mu      sync.Mutex
	log     bytes.Buffer
	peers   []Peer
	passes  map[netip.Addr]int // the biggest packet that gets there and back; none = all
	drops   func() bool        // whether the next one is lost; nil = none
	failure error              // of sending
	probes  map[netip.Addr]int
	reports int
}

func (w *world) ProbeAnswers() <-chan uint64 { return w.answers }

func (w *world) Probe(to netip.Addr, nonce uint64, size int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	w.probes[to]++
	if most, limited := w.passes[to]; (!limited || size <= most) && (w.drops == nil || !w.drops()) {
		w.answers <- nonce
	}
	return nil
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

// within has n hosts, all of them used, and do what happens.
func within(t *testing.T, n int, do func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, answers: make(chan uint64, 1000), passes: map[netip.Addr]int{}, probes: map[netip.Addr]int{}}
		var remotes desired.Map[desired.RemoteKey, *desired.Remote]
		for i := 1; i <= n; i++ {
			w.peers = append(w.peers, Peer{Name: model.HostName(fmt.Sprintf("h%d", i)), Addr: addr(i)})
			remotes = remotes.Set(desired.RemoteKey{Network: 1, MAC: model.MAC{5: byte(i), 4: byte(i >> 8)}}, &desired.Remote{VTEP: addr(i)})
		}
		w.prober = New(Config{
			Host: "h0", VTEP: addr(0), Port: 4789, Driver: w, Size: func() int { return 1450 },
			Peers: func() ([]Peer, <-chan struct{}) {
				changed := w.changes.Next()
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.peers, changed
			},
			Changed: func() { w.mu.Lock(); w.reports++; w.mu.Unlock() },
			Log:     slog.New(slog.NewTextHandler(&w.log, nil)),
		})
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN), Remotes: remotes})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.prober.Run(ctx) })
		do(w)
		cancel()
		running.Wait()
	})
}

// after has the world changed, and time pass.
func (w *world) after(d time.Duration, change func()) {
	w.Helper()
	w.mu.Lock()
	change()
	w.mu.Unlock()
	w.changes.Notify()
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

// wants expects an error with these words; without any, no error.
func (w *world) wants(when string, words ...string) {
	w.Helper()
	err := w.prober.Err()
	if (err != nil) != (len(words) > 0) {
		w.Errorf("%s: %v", when, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.Errorf("%s: %q lacks %q", when, err, word)
		}
	}
}

// TestHostWithoutAnswersIsReported: a host that answers no more is named within ten seconds, and no
// other one; that ends within ten seconds after it answers again.
func TestHostWithoutAnswersIsReported(t *testing.T) {
	within(t, 3, func(w *world) {
		w.after(time.Hour, func() {})
		w.wants("all answer")
		if w.reports != 0 || w.log.Len() > 0 {
			t.Errorf("told %d times: %s", w.reports, w.log.String())
		}
		for range 10 {
			w.after(10*time.Second, func() { w.passes[addr(2)] = 0 })
			w.wants("one is silent", "(UDP port 4789) from h0 (10.1.0.0) to h2 (10.1.0.2) are not answered, so containers there and here may be cut off")
			if strings.Contains(w.prober.Err().Error(), "h1") || w.prober.states()["silent"] != 1 || w.prober.states()["answering"] != 2 {
				t.Errorf("%v, %v", w.prober.Err(), w.prober.states())
			}
			w.after(10*time.Second, func() { delete(w.passes, addr(2)) })
			w.wants("it answers again")
		}
		if n := strings.Count(w.log.String(), "WARN"); w.reports > 30 || n != 10 {
			t.Errorf("told %d times, %d warnings", w.reports, n)
		}
		w.after(10*time.Second, func() { w.passes[addr(1)], w.passes[addr(2)], w.passes[addr(3)] = 0, 0, 0 })
		w.wants("all are silent", "h1 (10.1.0.1), h2 (10.1.0.2), h3 (10.1.0.3)")
		w.after(time.Second, func() { w.peers = w.peers[2:] })
		w.wants("the first two are away", "to h3 (10.1.0.3) are not")
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN)})
		w.after(time.Second, func() {})
		w.wants("nobody is sent to")
	})
}

// TestLostPacketsAreNoSilence: two lost probes in a row say nothing, nor does a host that
// is new and does not answer at once, nor what the driver could not send yet.
func TestLostPacketsAreNoSilence(t *testing.T) {
	within(t, 1, func(w *world) {
		w.after(time.Minute, func() {})
		for range 20 {
			w.after(probeTimeout+100*time.Millisecond, func() { w.passes[addr(1)] = 0 })
			w.wants("a probe is lost")
			w.after(2*probeInterval, func() { delete(w.passes, addr(1)) })
		}
		w.after(firstProbeWithin-time.Second, func() { w.peers, w.passes[addr(2)] = []Peer{{"h2", addr(2)}}, 0 })
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN), Remotes: desired.Map[desired.RemoteKey, *desired.Remote]{}.Set(desired.RemoteKey{}, &desired.Remote{VTEP: addr(2)})})
		w.after(firstProbeWithin, func() {})
		w.wants("it is new")
		w.after(probeInterval+2*probeTimeout, func() {})
		w.wants("it has had its time", "h2")
		w.after(10*time.Second, func() { delete(w.passes, addr(2)) })
		w.after(time.Minute, func() { w.failure = model.Errorf(model.ErrUnavailable, "no tunnel yet") })
		w.wants("the driver cannot send yet")
		w.after(time.Minute, func() { w.failure = errors.New("network is unreachable") })
		w.wants("this host has no route there", "h2")
		w.after(probeInterval, func() { w.failure = nil })
	})
}

// TestBigPacketsAreLost: the sentence names the size that passes, and goes when all does.
func TestBigPacketsAreLost(t *testing.T) {
	within(t, 2, func(w *world) {
		w.after(time.Minute, func() {})
		w.after(15*time.Second, func() { w.passes[addr(1)] = 1410 })
		w.wants("packets of full size are lost", "test packets of 1450 bytes are lost in the tunnel (UDP port 4789) between h0 (10.1.0.0) and h1 (10.1.0.1)", "those of 1400 bytes pass")
		if s := w.prober.states(); s["small-only"] != 1 || s["answering"] != 1 {
			t.Error(s)
		}
		w.after(10*time.Second, func() { w.passes[addr(1)] = 1200 })
		w.wants("less passes", "those of 1200 bytes pass")
		w.after(10*time.Second, func() { w.passes[addr(1)] = 0 })
		w.wants("small ones have passed lately", "some test packets", "to h1 (10.1.0.1) ", " of the last 20")
		w.after(20*time.Second, func() {})
		w.wants("nothing passes", "to h1 (10.1.0.1) are not answered")
		w.after(10*time.Second, func() { delete(w.passes, addr(1)) })
		w.wants("all passes")
	})
}

// TestCutIsReportedAgainWhenTheHostReturns: a host that was cut off is reported again as soon as it is back
// in the list, not while it is away, and no more once it answers or was away for long.
func TestCutIsReportedAgainWhenTheHostReturns(t *testing.T) {
	within(t, 2, func(w *world) {
		all := w.peers
		w.after(time.Minute, func() {})
		w.after(15*time.Second, func() { w.passes[addr(2)] = 0 })
		w.wants("it is cut off", "h2")
		// Endpoints on joined VLAN networks have tunnel endpoints too, from which they come to VXLAN ones.
		remotes := w.prober.topo.remotes
		for encap, parts := range map[model.Encap][]string{model.EncapVLAN: nil, model.EncapVXLAN: {"h2"}} {
			w.prober.Follow(desired.Host{Networks: networks(encap), Remotes: remotes})
			w.after(time.Second, func() {})
			w.wants("its networks are "+string(encap), parts...)
		}
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN), Remotes: remotes})
		w.after(time.Second, func() {})
		for _, away := range []time.Duration{time.Second, forgetAfter / 2, forgetAfter - time.Second} {
			w.after(away, func() { w.peers = all[:1] })
			w.wants("it is away")
			w.after(0, func() { w.peers = all })
			w.wants("it is back", "to h2 (10.1.0.2) are not answered")
			w.after(time.Minute, func() {})
			w.wants("it still does not answer", "to h2 (10.1.0.2) are not answered")
		}
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN)})
		w.after(time.Second, func() {})
		w.wants("nobody is sent to")
		w.prober.Follow(desired.Host{Networks: networks(model.EncapVXLAN), Remotes: remotes})
		w.after(0, func() {})
		w.wants("somebody is sent to", "to h2 (10.1.0.2) are not answered")
		w.after(time.Minute, func() { w.peers = all[:1] })
		w.after(100*time.Millisecond, func() { w.peers = all; delete(w.passes, addr(2)) })
		w.wants("it is back and answers")
		w.after(15*time.Second, func() { w.passes[addr(2)] = 0 })
		w.after(forgetAfter, func() { w.peers = all[:1] })
		w.after(time.Second, func() { w.peers = all })
		w.wants("it was away for long")
		w.after(time.Second, func() { w.peers = nil })
		if n := len(w.prober.away) + len(w.prober.peers); n != 0 {
			t.Errorf("%d hosts are remembered", n)
		}
	})
}

// TestPartialLossIsCalledThat: where some packets are lost, no sentence says that none
// passes or that big ones are lost, and no chance answer ends the condition.
func TestPartialLossIsCalledThat(t *testing.T) {
	within(t, 1, func(w *world) {
		w.after(time.Minute, func() {})
		chance := rand.New(rand.NewPCG(1, 2))
		w.after(0, func() { w.drops = func() bool { return chance.Float64() < 0.4 } })
		reported, begun := 0, 0
		for was := false; reported < 1000; was = w.prober.Err() != nil {
			w.after(time.Second, func() {})
			err := w.prober.Err()
			if err == nil {
				continue
			}
			if reported++; !was {
				begun++
			}
			if !strings.Contains(err.Error(), "some test packets of the tunnel (UDP port 4789) from h0 (10.1.0.0) are lost") || w.prober.states()["lossy"] != 1 {
				t.Fatalf("%v, %v", err, w.prober.states())
			}
		}
		if begun > 25 || w.reports > 150 {
			t.Errorf("in %d s it began %d times, and was told %d times", reported, begun, w.reports)
		}
		w.after(10*time.Second, func() { w.drops = nil })
		w.wants("it is mended")
	})
}

// TestRateIsBounded: hosts are asked in turn, 200 packets a second in all.
func TestRateIsBounded(t *testing.T) {
	within(t, 1500, func(w *world) {
		w.after(time.Minute, func() {})
		clear(w.probes)
		w.after(time.Minute, func() {})
		total, least := 0, 1000
		for i := range w.peers {
			n := w.probes[addr(i+1)]
			total, least = total+n, min(least, n)
		}
		if total < 11000 || total > 12100 || least < 4 {
			t.Errorf("%d packets in a minute, at least %d to each", total, least)
		}
		w.wants("all answer")
	})
}

func networks(encap model.Encap) desired.Map[model.NetworkID, *desired.Network] {
	return desired.Map[model.NetworkID, *desired.Network]{}.Set(1, &desired.Network{Encap: encap})
}
