//go:build integration

package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// undo puts right what a mistake did; nil = there is nothing to put right.
type undo func(context.Context) error

// mistake is one kind of thing that an operator does wrong, or that happens to
// a machine.
type mistake struct {
	name  string
	only  string // the driver on whose hosts it can be made; empty = any
	store string // the kind of store on which it can be made; empty = any
	// needs: until this mistake is undone no other one may be made that needs one
	// of the same words. A word that ends with @ means the host on which the
	// mistake is made; a mistake without such a word is made on no host.
	needs []string
	costs cost
	// statusWords are the words by which, beside the host, the status names the mistake
	// within 10 s, while it lasts; nil = it leaves nothing that is wrong.
	statusWords []string
	// noticed are the words by which, beside the host, the status names it as a warning or
	// notice, while it says that all is well; nil = nothing is to be noticed.
	noticed []string
	// well: nothing else may say that anything is wrong meanwhile, health and metrics included.
	well bool
	open string // the fault that it shows, which is not mended yet: only -open makes it
	do   func(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error)
}

// victimName stands, among the words of noticed, for the newest victim's name.
const victimName = "VICTIM"

// cost is the longest time without an answered ping that documentation grants to a
// mistake or to its end: on the host itself, and between hosts. With lasts, pings
// between hosts may stay unanswered for a minute while the mistake lasts.
type cost struct {
	sameHost, acrossHosts time.Duration
	lasts                 bool
	why                   string // what the documentation says
}

func (m *mistake) onHost() bool {
	return slices.ContainsFunc(m.needs, func(n string) bool { return strings.HasSuffix(n, "@") })
}

// step is one mistake of a plan.
type step struct {
	mistake *mistake
	host    string // empty = the mistake is made on no host
	holds   int    // how many further mistakes are made before it is undone
	seed    uint64
}

func (s step) String() string {
	if s.host == "" {
		return s.mistake.name
	}
	return s.mistake.name + " on " + s.host
}

func (s step) needs() (out []string) {
	for _, n := range s.mistake.needs {
		if base, ok := strings.CutSuffix(n, "@"); ok {
			n = base + "@" + s.host
		}
		out = append(out, n)
	}
	return out
}

// plan decides what is done wrong, and in which order: all kinds in turn, then
// all again in another order, each as soon as nothing stands in its way. It
// depends on its arguments only.
func plan(seed uint64, n int, driver string, all []*mistake, hosts []string) []step {
	r := rand.New(rand.NewPCG(seed, 0))
	all = slices.DeleteFunc(slices.Clone(all), func(m *mistake) bool { return m.only != "" && m.only != driver })
	type held struct {
		needs []string
		until int
	}
	var out []step
	var holds []held
	var deck []*mistake
	for len(out) < n {
		if len(deck) == 0 {
			deck = slices.Clone(all)
			r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		holds = slices.DeleteFunc(holds, func(h held) bool { return h.until < len(out) })
		busy := func(need string) bool {
			return slices.ContainsFunc(holds, func(h held) bool {
				return slices.ContainsFunc(h.needs, func(x string) bool {
					return x == need || x == "all" || need == "all" || strings.HasPrefix(x, need+"@") || strings.HasPrefix(need, x+"@")
				})
			})
		}
		i := slices.IndexFunc(deck, func(m *mistake) bool {
			s := step{mistake: m, holds: max(0, r.IntN(5)-2), seed: r.Uint64()}
			if m.onHost() {
				s.host = hosts[r.IntN(len(hosts))]
			}
			if slices.ContainsFunc(s.needs(), busy) {
				return false
			}
			holds = append(holds, held{s.needs(), len(out) + s.holds})
			out = append(out, s)
			return true
		})
		if i < 0 { // the mistakes that hold leave room for no other: they are put right first
			for j := range out {
				out[j].holds = min(out[j].holds, len(out)-1-j)
			}
			holds = nil
			continue
		}
		deck = slices.Delete(deck, i, i+1)
	}
	return out
}

// kinds are the mistakes that can be made on a kind of store.
func kinds(store string) []*mistake {
	return slices.DeleteFunc(mistakes(), func(m *mistake) bool { return m.store != "" && m.store != store })
}

// TestPlanRepeats checks that a seed says everything, that no kind of mistake is
// left out, and that none is made where another one stands in its way.
func TestPlanRepeats(t *testing.T) {
	hosts := []string{"h1", "h2", "h3"}
	for _, store := range []string{embedded, etcdProcess} {
		for _, driver := range []string{testcluster.DriverEBPF, testcluster.DriverOVS} {
			a, b := plan(7, 300, driver, kinds(store), hosts), plan(7, 300, driver, kinds(store), hosts)
			seen := map[string]bool{}
			for i := range a {
				if a[i].String() != b[i].String() || a[i].seed != b[i].seed || a[i].holds != b[i].holds {
					t.Fatalf("step %d is %s, then %s", i, a[i], b[i])
				}
				seen[a[i].mistake.name] = true
				if o := a[i].mistake.only; o != "" && o != driver {
					t.Errorf("%s is not for %s", a[i], driver)
				}
			}
			for _, m := range kinds(store) {
				if (m.only == "" || m.only == driver) && !seen[m.name] {
					t.Errorf("300 mistakes on %s and %s hold no %q", driver, store, m.name)
				}
			}
		}
	}
}
