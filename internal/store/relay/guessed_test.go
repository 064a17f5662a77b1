package relay

import (
	"context"
	"io"
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
		c.Hubs = func(context.Context) ([]string, []string) { return []string{"known"}, []string{"guessed", "known"} }
		open := c.Open
		c.Open = func(ctx context.Context, hub string) (io.ReadWriteCloser, error) {
			mu.Lock()
			asked[hub]++
			mu.Unlock()
			return open(ctx, hub)
		}
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
