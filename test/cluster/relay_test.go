package cluster

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/relay"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// relayBeat is how often netmasters here tell that what they relay is fresh: so often
// that one which stands still is left while it does.
const relayBeat = 50 * time.Millisecond

// relayedPrefixes are what is mirrored here, each by itself.
var relayedPrefixes = []string{tables.GlobalPrefix, tables.TenantPrefix(tenant)}

// contents is what a mirror of each prefix holds, as a sum over its rows.
type contents struct {
	rows map[string]uint64
	sum  uint64
}

func (c *contents) apply(prefix string, events []store.Event) {
	for _, e := range events {
		key := e.KV.Key
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		c.sum -= c.rows[key]
		delete(c.rows, key)
		if !e.Deleted() {
			h := fnv.New64a()
			_, _ = fmt.Fprintf(h, "%q %q %d %d", key, e.KV.Value, e.KV.Create, e.KV.Mod) // it never fails
			c.rows[key] = h.Sum64()
			c.sum += c.rows[key]
		}
	}
}

// moment is what something held once.
type moment struct {
	rev store.Revision
	sum uint64
	hub bool
}

// annals are what the store held under a prefix, by revision, and where that is not known.
type annals struct {
	moments []moment // in order
	gaps    [][2]store.Revision
}

// at returns what the store held, and false if that is unknown.
func (a *annals) at(rev store.Revision) (uint64, bool) {
	n, found := slices.BinarySearchFunc(a.moments, rev, func(m moment, rev store.Revision) int { return int(m.rev - rev) })
	if !found {
		n--
	}
	if n < 0 || n == len(a.moments)-1 && !found || slices.ContainsFunc(a.gaps, func(g [2]store.Revision) bool { return rev >= g[0] && rev <= g[1] }) {
		return 0, false
	}
	return a.moments[n].sum, true
}

// historian writes annals, by a mirror of all commits that no fault breaks.
type historian struct {
	mu     sync.Mutex
	annals []annals
	now    []contents
	rev    store.Revision
}

func (h *historian) follow(ctx context.Context, st store.Store) error {
	h.annals, h.now = make([]annals, len(relayedPrefixes)), nil
	for range relayedPrefixes {
		h.now = append(h.now, contents{rows: map[string]uint64{}})
	}
	return st.Mirror(ctx, relayedPrefixes, func(b store.Batch) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, p := range relayedPrefixes {
			if b.Listed {
				h.annals[i].gaps = append(h.annals[i].gaps, [2]store.Revision{h.rev + 1, b.Revision - 1})
			}
			h.now[i].apply(p, b.Events)
			h.annals[i].moments = append(h.annals[i].moments, moment{rev: b.Revision, sum: h.now[i].sum})
		}
		h.rev = b.Revision
		return nil
	}, store.FollowCommits())
}

// mirroring is a host as far as it mirrors the cluster, from netmasters that relay it.
type mirroring struct {
	n      int
	reader *relay.Reader
	wire   wire
	ways   []*link
	turn   sync.Mutex
	mu     sync.Mutex
	seen   [][]moment // by prefix
}

// mirror has hosts follow the cluster until end is called, with faults on their ways.
func (w *world) mirror(hosts int) (all []*mirroring, end func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var ends []func()
	for n := range hosts {
		st, wire := w.st.connect(w.t, false)
		m := &mirroring{n: n, wire: wire, seen: make([][]moment, len(relayedPrefixes))}
		var urls []string
		for _, s := range w.seats {
			l := newLink(w.t, s.target)
			m.ways = append(m.ways, l)
			urls = append(urls, "http://"+l.address)
		}
		way, err := client.New(client.Config{Host: "h", Fixed: strings.Join(urls, ",")})
		if err != nil {
			w.t.Fatal(err)
		}
		m.reader = relay.NewReader(relay.Config{
			Log: slog.New(slog.DiscardHandler), Hubs: way,
			Patience: 6 * relayBeat, AnswerFor: 6 * relayBeat, NextAfter: relayBeat,
		})
		running.Go(func() { m.reader.Run(ctx) })
		for i, p := range relayedPrefixes {
			running.Go(func() { m.follow(ctx, i, p) })
		}
		all = append(all, m)
		ends = append(ends, func() {
			way.Close()
			_ = st.Close() // it was read
		})
	}
	w.more = append(w.more, mirrorFaults(all)...)
	end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for _, e := range ends {
			e()
		}
	})
	w.t.Cleanup(end)
	return all, end
}

func (m *mirroring) follow(ctx context.Context, i int, prefix string) {
	now := contents{rows: map[string]uint64{}}
	_ = m.reader.Mirror(ctx, []string{prefix}, func(b store.Batch) error { // its error is ctx's end
		if b.Snapshot {
			now = contents{rows: map[string]uint64{}}
		}
		now.apply(prefix, b.Events)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen[i] = append(m.seen[i], moment{b.Revision, now.sum, m.reader.From().Hub != ""})
		return nil
	})
}

func (m *mirroring) last(i int) (out moment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.seen[i]); n > 0 {
		out = m.seen[i][n-1]
	}
	return out
}

// mirrorFaults are what goes wrong on the ways of hosts that mirror.
func mirrorFaults(all []*mirroring) []fault {
	on := func(name string, do func(m *mirroring, chance *rand.Rand) (undo func())) fault {
		return fault{name, func(_ context.Context, chance *rand.Rand) func() {
			m := all[chance.IntN(len(all))]
			if !m.turn.TryLock() {
				return nil
			}
			undo := do(m, chance)
			return func() {
				undo()
				m.turn.Unlock()
			}
		}}
	}
	each := func(m *mirroring, do func(*link)) {
		for _, l := range m.ways {
			do(l)
		}
	}
	return []fault{
		on("a host loses the store", func(m *mirroring, _ *rand.Rand) func() {
			m.wire.cut()
			return m.wire.heal
		}),
		on("a host is cut off from one netmaster", func(m *mirroring, c *rand.Rand) func() {
			l := m.ways[c.IntN(len(m.ways))]
			l.cut()
			return l.heal
		}),
		on("a host is cut off from all netmasters", func(m *mirroring, _ *rand.Rand) func() {
			each(m, (*link).cut)
			return func() { each(m, (*link).heal) }
		}),
		on("what is relayed does not arrive", func(m *mirroring, _ *rand.Rand) func() {
			each(m, func(l *link) { l.stall(true) })
			return func() { each(m, (*link).heal) }
		}),
	}
}

// relays runs a world in which hosts mirror from netmasters, and returns what is wrong
// with what they were told: at each revision it has to be what the store held then. It
// tells whether hosts were told much by netmasters, and left some of those.
func relays(t *testing.T, plan uint64, mutant func(http.Handler) http.Handler, total int) (wrong []string, much bool) {
	t.Helper()
	w := newWorld(t, inMemory{memory.New()})
	w.mutant = mutant
	w.start(true)
	hist := &historian{}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	st := w.st.direct(t)
	writing.Go(func() { _ = hist.follow(ctx, st) }) // its error is ctx's end
	defer func() {
		stop()
		writing.Wait()
		_ = st.Close() // it was read
	}()
	hosts, end := w.mirror(3)
	defer end()
	wrong = w.run(plan, total)
	settled := func() error {
		for i, p := range relayedPrefixes {
			hist.mu.Lock()
			want := hist.now[i].sum
			hist.mu.Unlock()
			for _, m := range hosts {
				if m.last(i).sum != want {
					return fmt.Errorf("host %d has not what is under %s", m.n, p)
				}
			}
		}
		return nil
	}
	if mutant == nil {
		w.eventually("hosts have what the store has", settled)
	} else if err := settled(); err != nil {
		wrong = append(wrong, err.Error())
	}
	end()
	judged, relayed, moves := 0, 0, 0
	for _, m := range hosts {
		moves += m.reader.From().Moves
		for i, p := range relayedPrefixes {
			for _, is := range m.seen[i] {
				want, known := hist.annals[i].at(is.rev)
				if !known {
					continue
				}
				if judged++; is.hub {
					relayed++
				}
				if is.sum != want {
					wrong = append(wrong, fmt.Sprintf("host %d holds under %s, at revision %d, what the store never held", m.n, p, is.rev))
				}
			}
		}
	}
	t.Logf("%d batches of hosts judged, %d of them while a netmaster relayed; from one place to another %d times", judged, relayed, moves)
	return wrong, relayed >= total/10 && moves > len(hosts)
}

// TestRelayedHostsGetTheStoresContents: hosts that mirror from netmasters get the store's contents, whole transactions
// in order, whatever dies, hangs or is cut off.
func TestRelayedHostsGetTheStoresContents(t *testing.T) {
	for plan := range uint64(5) { // which netmasters hosts choose is no plan's
		wrong, much := relays(t, *seed+plan, nil, 1200)
		for _, w := range wrong {
			t.Error(w)
		}
		if much {
			return
		}
	}
	t.Error("five runs test little")
}

// TestSkippingRelayIsFound: a relay that skips a batch is found.
func TestSkippingRelayIsFound(t *testing.T) {
	all, _ := relays(t, *seed, skips, 240)
	for _, wrong := range all {
		if strings.Contains(wrong, "never held") {
			return
		}
	}
	t.Error("nothing is found")
}

// skips loses every tenth commit that is relayed.
func skips(h http.Handler) http.Handler {
	n := new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/plugin/mirror" {
			w = skipping{w, n}
		}
		h.ServeHTTP(w, r)
	})
}

type skipping struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Unwrap lets http.ResponseController reach the connection.
func (s skipping) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s skipping) Write(b []byte) (int, error) {
	var out []byte
	for line := range bytes.Lines(b) {
		commit := bytes.Contains(line, []byte(`"rows":`)) && !bytes.Contains(line, []byte(`"list":true`))
		if !commit || s.n.Add(1)%10 != 0 {
			out = append(out, line...)
		}
	}
	_, err := s.ResponseWriter.Write(out)
	return len(b), err
}
