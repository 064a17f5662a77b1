//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/conformance"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

const (
	// wellWithin is how soon all say that all is well, once everything works again.
	wellWithin = 20 * time.Second
	// shows is how long a damage is left in before it shows at all, and cutsFor how long one
	// that shows is: for longer than probes may fail untold.
	shows, cutsFor = 3 * time.Second, cutFor + 4*time.Second
	// repairs bounds how long everything takes to work again.
	repairs = time.Minute
)

// TestStatusTellsDamages damages a running test cluster at random, one damage at a time: rows,
// links, rules, maps, flows, processes, certificates of a secure cluster, and clocks. Probes
// send everything that is allowed. While one has had no answer for 10 s, neither `netctl
// status` nor the hosts' /healthz nor the metrics behind the alerts may say that all is well;
// within 20 s after everything works again, all must. A clock that was set, and a container
// that changes its own interface, may only cause notices or warnings. knownGaps lists damages
// that not all three report.
func TestStatusTellsDamages(t *testing.T) {
	chosen, ways := []string{testcluster.DriverMixed}, []string{*secure}
	if *secure == "" && *drivers == "" && *kind == embedded {
		ways = []string{"", bySecure, byPKI}
	}
	if *drivers != "" {
		chosen = strings.Split(*drivers, ",")
	} else if !conformance.Full() {
		all := []string{testcluster.DriverEBPF, testcluster.DriverOVS, testcluster.DriverMixed}
		chosen = []string{all[conformance.Choose(t.Name(), len(all))]}
		i := max(0, conformance.Choose(t.Name()+" secure", len(ways)+1)-1) // plain twice as often
		ways = ways[i : i+1]
	}
	type run struct{ driver, secure string }
	var runs []run
	for _, d := range chosen {
		for _, s := range ways {
			runs = append(runs, run{d, s})
		}
	}
	for _, r := range runs {
		d := r.driver
		t.Run(strings.TrimSuffix(d+"-"+r.secure, "-"), func(t *testing.T) {
			w := build(t, "damage", d, func(cfg *testcluster.Config) {
				switch r.secure {
				case bySecure:
					cfg.Secure = true
				case byPKI:
					cfg.TLS = testcluster.TLSOwn
				}
			})
			w.secure = r.secure
			w.damage()
		})
	}
}

// lies are what was said to be well and was not.
type lies struct {
	asking sync.Mutex // held while it is asked, and while a damage is put right
	mu     sync.Mutex
	texts  []string
}

func (l *lies) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}

func (l *lies) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.texts
	l.texts = nil
	return out
}

// watch compares each probe that fails for too long with what is said.
func (w *world) watch(ctx context.Context, all []*probe, l *lies) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, p := range all {
			l.asking.Lock()
			if p.due() {
				if lie := w.lie(ctx, p); lie != "" {
					l.add(lie)
				}
			}
			l.asking.Unlock()
		}
	}
}

// lie is what is said to be well while a probe fails, also after that was asked; "" = nothing.
func (w *world) lie(ctx context.Context, p *probe) string {
	v := w.ask(ctx, p.hosts)
	if len(v.reportingHealthy()) == 0 {
		return ""
	}
	took, err := p.failsOn(ctx)
	if took <= cutFor || ctx.Err() != nil {
		return ""
	}
	return fmt.Sprintf("the probe %s fails for %v (%v), and %s say that all is well\n%s", p.name, took.Round(time.Second), err, strings.Join(v.reportingHealthy(), ", "), v)
}

// broken names the probes that fail.
func broken(all []*probe) (out []string) {
	for _, p := range all {
		if took, err := p.fails(); took > 0 {
			out = append(out, fmt.Sprintf("%s: %v", p.name, err))
		}
	}
	return out
}

// damage makes the damages one by one.
func (w *world) damage() {
	kinds := w.damages(*kind)
	if *only != "" {
		kinds = slices.DeleteFunc(kinds, func(m *mistake) bool {
			return !slices.ContainsFunc(strings.Split(*only, ","), func(word string) bool { return strings.Contains(m.name, word) })
		})
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	all, l := w.probesOf(ctx), &lies{}
	for _, p := range all {
		running.Go(func() { p.run(ctx) })
	}
	w.must(w.works(ctx, all))
	w.must(w.isWellAgain(ctx))
	running.Go(func() { w.watch(ctx, all, l) })
	w.t.Logf("seed %d, %d damages on %s %s", *seed, *damageCount, w.driver, w.secure)
	r := rand.New(rand.NewPCG(*seed, 0))
	var deck []*mistake
	told := 0
	for n := 0; n < *damageCount && w.t.Context().Err() == nil; {
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		s := step{mistake: deck[0], seed: r.Uint64()}
		deck = deck[1:]
		var h *testcluster.Host
		if s.mistake.onHost() {
			fit := slices.DeleteFunc(slices.Clone(w.Hosts()), func(h *testcluster.Host) bool { return s.mistake.only != "" && h.Driver() != s.mistake.only })
			if len(fit) == 0 {
				continue
			}
			h = fit[r.IntN(len(fit))]
			s.host = h.Name
		}
		n++
		if w.one(ctx, n, s, h, all, l) {
			told++
		}
	}
	w.t.Logf("%d damages on %s, of which %d cut something off for more than %v; %d faults", *damageCount, w.driver, told, cutFor, len(w.faults))
}

// one makes a damage, leaves it in, and puts it right. It reports whether something was cut
// off for long.
func (w *world) one(ctx context.Context, n int, s step, h *testcluster.Host, all []*probe, l *lies) (cut bool) {
	begun := time.Now()
	dctx, cancel := context.WithTimeout(ctx, cutsFor+repairs)
	defer cancel()
	var back undo
	done := make(chan error, 1)
	go func() {
		var err error
		back, err = s.mistake.do(dctx, w, h, rand.New(rand.NewPCG(s.seed, 0)))
		done <- err
	}()
	err := <-done // some wait until the product has repaired it
	name := fmt.Sprintf("%d, %s", n, s)
	if err != nil {
		w.fault("%s: %v", name, err)
	}
	if s.mistake.statusWords != nil || s.mistake.noticed != nil {
		if err := w.says(ctx, s); err != nil {
			w.fault("%s: %v later: %v", name, wellWithin, err)
		}
	} else if back != nil {
		_ = testcluster.Until(w.within(ctx, shows), "something to be cut off", func(context.Context) error {
			if len(broken(all)) == 0 {
				return errors.New("nothing is")
			}
			return nil
		})
	}
	if back != nil {
		_ = testcluster.Until(w.within(ctx, cutsFor), "it to work again", func(context.Context) error {
			if b := broken(all); len(b) > 0 {
				return errors.New(strings.Join(b, "; "))
			}
			return nil
		})
	}
	if s.mistake.well {
		<-w.within(ctx, shows).Done() // for what is judged by the age of words
		if err := w.isWellAgain(ctx); err != nil {
			w.fault("%s: it cuts nothing off, and %v later: %v", name, wellWithin, err)
		}
	}
	hit := broken(all)
	for _, p := range all {
		took, _ := p.fails()
		cut = cut || took > cutFor
	}
	if back != nil {
		l.asking.Lock() // answers are about the damage, and not about its end
		err := back(dctx)
		l.asking.Unlock()
		if err != nil {
			w.fault("%s, put right: %v", name, err)
		}
	}
	if err := w.works(ctx, all); err != nil {
		w.fault("%s: %v", name, err)
	}
	worked := time.Now()
	if err := w.isWellAgain(ctx); err != nil {
		w.fault("%s: everything works again, and %v later: %v", name, wellWithin, err)
	}
	for _, lie := range l.taken() {
		w.fault("%s: %s", name, lie)
	}
	w.t.Logf("%s: %s: %v until it worked, %v more until all said so; cut off %q", begun.Format("15:04:05"), name, worked.Sub(begun).Round(100*time.Millisecond), time.Since(worked).Round(100*time.Millisecond), hit)
	return cut
}

// says waits until the status says what it has to of a damage.
func (w *world) says(ctx context.Context, s step) error {
	return testcluster.Until(w.within(ctx, wellWithin), "the status to tell of it", func(ctx context.Context) error {
		out, err := w.Masters.Netctl(ctx, "status")
		switch {
		case s.mistake.noticed != nil:
			err = w.notices(out, err, s)
		case err == nil:
			err = errors.New("it says that all is well")
		default:
			err = nil
			for _, word := range append(slices.Clone(s.mistake.statusWords), s.host) {
				if !strings.Contains(wrongs(out), word) {
					err = fmt.Errorf("it does not say %q", word)
				}
			}
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

func (w *world) within(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	w.t.Cleanup(cancel)
	return ctx
}

// works waits until all probes are answered.
func (w *world) works(ctx context.Context, all []*probe) error {
	return testcluster.Until(w.within(ctx, repairs), "everything to work", func(context.Context) error {
		if b := broken(all); len(b) > 0 {
			return errors.New(strings.Join(b, "; "))
		}
		return nil
	})
}

// isWellAgain waits until status, health and metrics say that all is well.
func (w *world) isWellAgain(ctx context.Context) error {
	return testcluster.Until(w.within(ctx, wellWithin), "all to say that all is well", func(ctx context.Context) error {
		if v := w.ask(ctx, []string{"h1", "h2", "h3"}); len(v.reportingHealthy()) < 3 {
			return errors.New(v.String())
		}
		return nil
	})
}
