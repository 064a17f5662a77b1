package mirror

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/watch"
)

// errTwice says that a watch was sent again after its connection broke: what answered
// may be another store than the one that was looked at before.
var errTwice = errors.New("its connection was lost before it began")

// once begins a watch, and fails if the request was sent more than once. The client of
// Kubernetes can be told not to do that (MaxRetries); net/http, which does so where a
// connection that it keeps breaks, cannot, but tells of each connection that it takes.
func once(ctx context.Context, begin func(context.Context) (watch.Interface, error)) (watch.Interface, error) {
	var sent atomic.Int32
	w, err := begin(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Add(1) },
	}))
	if err == nil && sent.Load() > 1 {
		w.Stop()
		return nil, errTwice
	}
	return w, err
}

// drained is a filtered watch whose Stop also ends the filter, which otherwise waits
// forever to deliver an event without a reader. Only the reader of a watch may stop it.
type drained struct{ watch.Interface }

func (d drained) Stop() {
	d.Interface.Stop()
	for range d.ResultChan() {
	}
}

// withoutRetryAfter drops an API server's Retry-After: client-go would wait and send the same
// request again by itself, up to ten times. The mirror has pauses of its own, after which
// it lists again.
func withoutRetryAfter(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err == nil {
			resp.Header.Del("Retry-After")
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
