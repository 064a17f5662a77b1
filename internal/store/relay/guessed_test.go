package relay

import (
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// A netmaster that is only guessed is asked when no known one answers, and not while one
// does.
func TestGuessedNetmastersAreAskedLast(t *testing.T) {
	base := memory.New()
	identify(t, base)
	replicas := map[string]*replica{"known": newReplica(t, base), "guessed": newReplica(t, base)}
	var mu sync.Mutex
	asked := map[string]int{}
	a := newAgent(base.Client(), replicas, func(c *Config) {
		c.NextAfter, c.Patience = time.Millisecond, time.Second
		c.Hubs = replicaHubs{replicas: replicas, known: []string{"known"}, guessed: []string{"guessed", "known"}, onOpen: func(hub string) {
			mu.Lock()
			defer mu.Unlock()
			asked[hub]++
		}}
	})
	t.Cleanup(func() { _ = a.Close() })
	s := watch(t, a, state+"x/")
	s.reaches(t, put(t, base, "x/0", "0"))
	mu.Lock()
	if asked["guessed"] != 0 {
		t.Errorf("asked: %v", asked)
	}
	mu.Unlock()
	replicas["known"].cut(true)
	eventually(t, "the guessed one is followed", func() bool { return a.From().Hub == "guessed" })
	s.reaches(t, put(t, base, "x/1", "1"))
}
