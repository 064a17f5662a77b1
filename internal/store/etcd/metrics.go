package etcd

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a request to etcd does, as the metric labels it.
const (
	opGet    = "get"    // keys by name
	opRange  = "range"  // a page of the keys under a prefix
	opCommit = "commit" // a transaction
	opLease  = "lease"  // grant or revoke one
)

// newRequests makes the histogram of a client's requests; each outcome of each
// operation is there from the start, so that a rate sees the first of them.
func newRequests() *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "contiv_store_request_duration_seconds", Help: "Time of one request of this process to the store, by operation and outcome.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	}, []string{"operation", "outcome"})
	for _, op := range []string{opGet, opRange, opCommit, opLease} {
		for _, outcome := range []string{"ok", "failed"} {
			h.WithLabelValues(op, outcome)
		}
	}
	return h
}

// Collectors are the metrics of the requests that this client makes.
func (c *Client) Collectors() []prometheus.Collector { return []prometheus.Collector{c.requests} }

// request makes one request, within its time, and counts how long it took. One
// that its caller gave up says nothing about the store. The error is etcd's.
func request[T any](ctx context.Context, c *Client, op string, do func(context.Context) (T, error)) (T, error) {
	rctx, cancel := c.within(ctx)
	defer cancel()
	begin := time.Now()
	answer, err := do(rctx)
	switch {
	case err == nil:
		c.requests.WithLabelValues(op, "ok").Observe(time.Since(begin).Seconds())
	case !errors.Is(ctx.Err(), context.Canceled):
		c.requests.WithLabelValues(op, "failed").Observe(time.Since(begin).Seconds())
	}
	return answer, err
}
