package docker

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// StartTimes starts containers on the networks, in turn, and returns the median
// time that docker run takes on each. The containers are removed again.
func (e *Engine) StartTimes(ctx context.Context, rounds int, networks ...string) (map[string]time.Duration, error) {
	took := map[string][]time.Duration{}
	for i := range rounds {
		for k := range networks {
			n := networks[(k+i)%len(networks)] // so that none always follows the same
			name := fmt.Sprintf("start-%d-%d", i, k)
			start := time.Now()
			if _, err := e.Docker(ctx, "run", "-d", "--name", name, "--net", n, Image, "sleep", "1000"); err != nil {
				return nil, err
			}
			took[n] = append(took[n], time.Since(start))
			if _, err := e.Docker(ctx, "rm", "-f", name); err != nil {
				return nil, err
			}
		}
	}
	out := map[string]time.Duration{}
	for n, list := range took {
		slices.Sort(list)
		out[n] = list[len(list)/2]
	}
	return out, nil
}
