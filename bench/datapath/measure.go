package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// series are the values of one path and metric, one a round.
type series []float64

// results are what was measured, by path and metric.
type results map[[2]string]series

func (r results) of(p, m string) series { return r[[2]string{p, m}] }

// measure runs every metric on every path, round after round, in another order
// in each, so that what the machine does besides falls on all of them alike.
// Of several paths with one name each round takes the next: where the kernel puts the
// structures of two containers makes some per cent of a round trip.
func (b *bench) measure(ctx context.Context, paths []path, metrics ...metric) (results, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collector among the threads that measure
	out, byName := results{}, map[string][]path{}
	for _, p := range paths { // a first measurement, which fills caches, does not count
		if _, err := latency.run([]path{p}, 20*time.Millisecond); err != nil {
			return nil, err
		}
		byName[p.name] = append(byName[p.name], p)
	}
	order := slices.Collect(maps.Keys(byName))
	for i := range b.rounds {
		fmt.Fprintf(os.Stderr, "  round %d of %d\n", i+1, b.rounds)
		for _, m := range metrics {
			runtime.GC()
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			now := make([]path, len(order))
			for j, name := range order {
				now[j] = byName[name][i%len(byName[name])]
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			values, err := m.run(now, b.window)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			for j, v := range values {
				k := [2]string{order[j], m.name}
				out[k] = append(out[k], v)
			}
		}
	}
	return out, nil
}
