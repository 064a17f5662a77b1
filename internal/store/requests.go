package store

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a request to a store does, as the metric labels it.
const (
	OpGet    = "get"    // keys by name
	OpRange  = "range"  // keys under a prefix, or a page of them
	OpCommit = "commit" // a transaction
	OpLease  = "lease"  // grant, refresh or revoke one
)

// Requests times the requests of one client of a store.
type Requests struct{ histogram *prometheus.HistogramVec }

// NewRequests makes the metric; each outcome of each operation is there from the
// start, so that a rate sees the first of them.
func NewRequests() *Requests {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "contiv_store_request_duration_seconds", Help: "Time of this process's requests to the store, by operation (get, range, commit, lease) and outcome (ok, failed).",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	}, []string{"operation", "outcome"})
	for _, op := range []string{OpGet, OpRange, OpCommit, OpLease} {
		for _, outcome := range []string{"ok", "failed"} {
			h.WithLabelValues(op, outcome)
		}
	}
	return &Requests{h}
}

// Collectors are the metrics.
func (r *Requests) Collectors() []prometheus.Collector { return []prometheus.Collector{r.histogram} }

// Observe counts a request made under ctx, the caller's context, that has ended. One
// that its caller gave up says nothing about the store.
func (r *Requests) Observe(ctx context.Context, op string, begin time.Time, err error) {
	switch {
	case err == nil:
		r.histogram.WithLabelValues(op, "ok").Observe(time.Since(begin).Seconds())
	case !errors.Is(ctx.Err(), context.Canceled):
		r.histogram.WithLabelValues(op, "failed").Observe(time.Since(begin).Seconds())
	}
}
