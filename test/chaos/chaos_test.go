//go:build integration

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// slack is the longest time without an answered ping that is put down to the
// machine, which carries all hosts on a few cores.
const slack = 100 * time.Millisecond

// pending is a mistake that has not been put right.
type pending struct {
	step
	n     int
	undo  undo
	until int // the step after which it is put right
}

// operate makes a plan's mistakes on one driver.
func operate(t *testing.T, driver string) {
	t.Helper()
	all := slices.DeleteFunc(kinds(*kind), func(m *mistake) bool { return m.open != "" && !*open })
	if *only != "" {
		all = slices.DeleteFunc(all, func(m *mistake) bool {
			return !slices.ContainsFunc(strings.Split(*only, ","), func(w string) bool { return strings.Contains(m.name, w) })
		})
	}
	t.Logf("seed %d, %d mistakes on %s: make chaos-operator SEED=%[1]d COUNT=%[2]d DRIVER=%[3]s STORE=%[4]s repeats them", *seed, *count, driver, *kind)
	w := build(t, "chaos", driver)
	w.judge("nothing at all", nil)
	if t.Failed() {
		return
	}
	begin := time.Now()
	var left []pending
	for i, s := range plan(*seed, *count, driver, all, []string{"h1", "h2", "h3"}) {
		left = w.end(i, left)
		left = append(left, w.make(i, s, left)...)
	}
	w.end(-1, left)
	t.Logf("%d mistakes in %v; %d faults", *count, time.Since(begin).Round(time.Second), len(w.faults))
	w.summary()
	w.finish(all)
}

// make makes a mistake, and puts it right at once where its step says so.
func (w *world) make(n int, s step, open []pending) []pending {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
	defer cancel()
	var h *testcluster.Host
	if s.host != "" {
		var err error
		h, err = w.Host(s.host)
		w.must(err)
	}
	start := time.Now()
	back, err := s.mistake.do(ctx, w, h, rand.New(rand.NewPCG(s.seed, uint64(n))))
	name := fmt.Sprintf("%d, %s", n+1, s)
	w.t.Logf("%s: %s: done in %v, to be put right after %d more", start.Format("15:04:05.000"), name, time.Since(start).Round(time.Millisecond), s.holds)
	if err != nil {
		w.fault("%s: %v", name, err)
	}
	p := pending{s, n, back, n + s.holds}
	w.judge(name, append(slices.Clone(open), p))
	if back == nil {
		return nil
	}
	if s.holds == 0 {
		return w.end(n+1, []pending{p}, open...)
	}
	return []pending{p}
}

// end puts right the mistakes that are due before step n; all with n = -1. The
// others are in force besides.
func (w *world) end(n int, open []pending, others ...pending) (left []pending) {
	for i, p := range open {
		if n >= 0 && p.until >= n {
			left = append(left, p)
			continue
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Minute)
		start := time.Now()
		err := p.undo(ctx)
		cancel()
		name := fmt.Sprintf("%d, %s, put right", p.n+1, p.step)
		w.t.Logf("%s: %s in %v", start.Format("15:04:05.000"), name, time.Since(start).Round(time.Millisecond))
		if err != nil {
			w.fault("%s: %v", name, err)
		}
		w.judge(name, slices.Concat(others, open[i:], left))
	}
	return left
}

// judge looks at what the traffic suffered since it was last asked, and at the
// daemons; of are the mistakes that may have had a part in that.
func (w *world) judge(name string, of []pending) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := w.flow(ctx, 40); err != nil {
		w.fault("%s: %v", name, err)
	}
	allowed := map[string]time.Duration{}
	tcp := false
	for _, p := range of {
		c := p.mistake.costs
		allowed["near"], allowed["far"] = max(allowed["near"], c.sameHost), max(allowed["far"], c.acrossHosts)
		if c.lasts {
			allowed["far"] = max(allowed["far"], time.Minute)
		}
		tcp = tcp || c.sameHost+c.acrossHosts >= time.Second
	}
	w.outlast(ctx, of)
	for _, lie := range w.truth.takeLies() {
		w.fault("%s: %s", name, lie)
	}
	for series, p := range w.pings {
		now := time.Now()
		s := p.Between(w.judged[series], now)
		gap := s.Gap
		switch {
		case s.Answered.IsZero():
			gap = now.Sub(w.judged[series])
		case s.Lost() > 0: // perhaps it goes on
			gap = max(gap, now.Sub(s.Answered))
		}
		if !s.Answered.IsZero() {
			w.judged[series] = s.Answered
		}
		if gap > slack {
			k := of0(of) + ", " + series
			w.longest[k] = max(w.longest[k], gap)
		}
		if limit := allowed[series] + slack; gap > limit {
			w.fault("%s: %v without an answered ping %s (from %s; %s), %v are allowed", name, gap.Round(time.Millisecond), series, s.GapAt.Format("15:04:05.000"), s, limit)
		}
	}
	for series, k := range w.talks {
		if broken := k.taken(); len(broken) > 0 && !tcp {
			w.fault("%s: the TCP connection %s broke: %s", name, series, strings.Join(broken, "; "))
		}
	}
	for _, s := range w.knocks.taken() {
		w.fault("%s: what must not pass passed: %s", name, s)
	}
	for daemon, p := range w.Processes() {
		if !p.Alive() && !w.down[daemon] {
			w.fault("%s: %s has ended:\n%s", name, daemon, p.Tail(5))
			if err := w.startDaemon(ctx, daemon); err != nil {
				w.fault("%s: start %s again: %v", name, daemon, err)
			}
		}
	}
}

// outlast waits until pings are answered again, unless one of the mistakes lasts and cuts
// them off: so an outage is reported once, with the mistake that caused it.
func (w *world) outlast(ctx context.Context, of []pending) {
	if slices.ContainsFunc(of, func(p pending) bool { return p.mistake.costs.lasts }) {
		return
	}
	_ = testcluster.Until(ctx, "pings to be answered", func(context.Context) error {
		for series, p := range w.pings {
			now := time.Now()
			if s := p.Between(now.Add(-slack), now); s.Received == 0 {
				return fmt.Errorf("%s are not", series)
			}
		}
		return nil
	}) // the outage itself is judged
}

// of0 names the last mistake of a list.
func of0(of []pending) string {
	if len(of) == 0 {
		return "nothing"
	}
	return of[len(of)-1].mistake.name
}

// summary prints the longest outage for each kind of mistake.
func (w *world) summary() {
	var lines []string
	for k, d := range w.longest {
		lines = append(lines, fmt.Sprintf("%v: %s", d.Round(time.Millisecond), k))
	}
	slices.Sort(lines)
	for _, l := range lines {
		w.t.Logf("longest outage %s", l)
	}
	for i, f := range w.faults {
		w.t.Logf("fault %d: %s", i+1, f)
	}
}
