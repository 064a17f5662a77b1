package conformance

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var (
	seed = flag.Uint64("seed", 0, "which sample is tried where all would take too long; 0 = by "+seedEnv+", or else by the commit")
	full = flag.Bool("full", false, "everything, not samples")
)

// Full reports whether everything is to be tried, and not samples.
func Full() bool { return *full }

// seedEnv holds a seed for all packages of a run, of which not all have the flag -seed.
const seedEnv = "CONTIV_TEST_SEED"

// Seed decides what samples hold: -seed, else the environment, else the commit, so that the
// samples of one commit after the other try everything.
func Seed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return defaultSeed()
}

var defaultSeed = sync.OnceValue(func() uint64 {
	return seedOf(os.Getenv(seedEnv), func() string {
		out, err := exec.CommandContext(context.Background(), "git", "rev-parse", "HEAD").Output()
		if err != nil {
			return "" // the source without its history
		}
		return string(out)
	})
})

// seedOf is the seed by the environment's value, or else by the commit; 1 without either.
func seedOf(env string, commit func() string) uint64 {
	if n, err := strconv.ParseUint(env, 10, 64); err == nil && n != 0 {
		return n
	}
	hash := commit()
	if n, err := strconv.ParseUint(hash[:min(len(hash), 7)], 16, 64); err == nil && n != 0 {
		return n
	}
	return 1
}

// Choose returns a number below n for a name, by the seed.
func Choose(name string, n int) int { return choose(name, Seed(), n) }

func choose(name string, seed uint64, n int) int {
	h := fnv.New64a()
	fmt.Fprint(h, name, seed)
	return int(h.Sum64() % uint64(n))
}

// Sample returns cases of those given that together have every value of every
// dimension; which, the seed decides. The same seed returns the same cases.
func Sample(cases []Case, seed uint64) (out []Case) {
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[[2]string]bool{}
	for _, i := range r.Perm(len(cases)) {
		fresh := false
		for d, value := range strings.Split(cases[i].Name, "-")[1:] {
			k := [2]string{strconv.Itoa(d), value}
			fresh = fresh || !seen[k]
			seen[k] = true
		}
		if fresh {
			out = append(out, cases[i])
		}
	}
	return out
}

// parts is in how many parts the exchanges of packets are of which each case is tried
// with one.
const parts = 4

// tries reports whether the n-th case is tried with the i-th packet of its exchanges, which
// are a request and its answer each: of a slow harness with a fifth of them, always the
// same; else with one part, another in the next case, or with -full with all.
func (h Harness) tries(n, i int) bool {
	if h.Slow {
		return i/2%5 == 0
	}
	return *full || inPart(Seed(), n, i)
}

func inPart(seed uint64, n, i int) bool { return (seed+uint64(n)+uint64(i/2))%parts == 0 }

// RunAttached runs the suite on programs that Run has been through, attached in
// another way, the n-th of several, with Harness.Slow. Each test whose outcome the way
// of attaching may change is run in one of the ways, and of the tests that only the
// programs decide a third; which, the seed decides. With -full each way runs all.
func RunAttached(t *testing.T, n, ways int, start func(t *testing.T) Harness) {
	t.Helper()
	t.Logf("a sample, which -seed %d repeats; -full runs all", Seed())
	for i, test := range suite {
		if !*full && !turn(Seed(), i, n, ways, test.programs) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			h := start(t)
			h.Slow = !*full
			test.run(t, h)
		})
	}
}

// turn reports whether a seed has the n-th of several ways run test i.
func turn(seed uint64, i, n, ways int, programs bool) bool {
	every := ways
	if programs {
		n, every = 3*n, 3*ways
	}
	return (uint64(i)+seed)%uint64(every) == uint64(n)
}
