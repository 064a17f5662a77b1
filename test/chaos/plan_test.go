//go:build integration

package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/lab"
)

// undo puts right what a mistake did; nil = there is nothing to put right.
type undo func(context.Context) error

// mistake is one kind of thing that an operator does wrong, or that happens to
// a machine.
type mistake struct {
	name string
	only string // the driver on whose hosts it can be made; empty = any
	// Until it is undone no other mistake may be made that needs one of these. A
	// word that ends with @ means the host on which it is made; one without a
	// host among them is made on none.
	needs []string
	costs cost
	open  string // the fault that it shows, which is not mended yet: only -open makes it
	do    func(ctx context.Context, w *world, h *lab.Host, r *rand.Rand) (undo, error)
}

// cost is the longest time without an answered ping that documentation grants
// to a mistake or to its end: on the host itself, and between hosts. While the
// mistake lasts too, when lasts is set.
type cost struct {
	near, far time.Duration
	lasts     bool
	why       string // where it is said
}

func (m *mistake) onHost() bool {
	return slices.ContainsFunc(m.needs, func(n string) bool { return strings.HasSuffix(n, "@") })
}

// step is one mistake of a plan.
type step struct {
	mistake *mistake
	host    string // empty for what is made on no host
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

// plan decides what is done wrong, and in which order. It depends on its
// arguments only.
func plan(seed uint64, n int, driver string, all []*mistake, hosts []string) []step {
	r := rand.New(rand.NewPCG(seed, 0))
	type held struct {
		needs []string
		until int
	}
	var out []step
	var holds []held
	for tries := 0; len(out) < n; tries++ {
		if tries > 200 { // what is held leaves room for nothing: it is put right first
			for i := range out {
				out[i].holds = min(out[i].holds, len(out)-1-i)
			}
			holds = nil
		}
		holds = slices.DeleteFunc(holds, func(h held) bool { return h.until < len(out) })
		m := all[r.IntN(len(all))]
		s := step{mistake: m, holds: max(0, r.IntN(5)-2), seed: r.Uint64()}
		if m.onHost() {
			s.host = hosts[r.IntN(len(hosts))]
		}
		busy := func(need string) bool {
			return slices.ContainsFunc(holds, func(h held) bool {
				return slices.ContainsFunc(h.needs, func(x string) bool {
					return x == need || x == "all" || need == "all" || strings.HasPrefix(x, need+"@") || strings.HasPrefix(need, x+"@")
				})
			})
		}
		if m.only != "" && m.only != driver || slices.ContainsFunc(s.needs(), busy) {
			continue
		}
		holds = append(holds, held{s.needs(), len(out) + s.holds})
		out = append(out, s)
		tries = 0
	}
	return out
}

// TestPlanRepeats checks that a seed says everything, and that no mistake is
// made where another one stands in its way.
func TestPlanRepeats(t *testing.T) {
	hosts := []string{"h1", "h2", "h3"}
	for _, driver := range []string{lab.DriverEBPF, lab.DriverOVS} {
		a, b := plan(7, 300, driver, mistakes(), hosts), plan(7, 300, driver, mistakes(), hosts)
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
		for _, m := range mistakes() {
			if (m.only == "" || m.only == driver) && !seen[m.name] {
				t.Errorf("300 mistakes on %s hold no %q", driver, m.name)
			}
		}
	}
}
