package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// requestCounts reads how many requests a client has made, by operation and outcome.
func requestCounts(t *testing.T, c *Client) map[[2]string]uint64 {
	t.Helper()
	r := prometheus.NewRegistry()
	for _, x := range c.Collectors() {
		if err := r.Register(x); err != nil {
			t.Fatal(err)
		}
	}
	families, err := r.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(len(families), err)
	}
	out := map[[2]string]uint64{}
	for _, m := range families[0].GetMetric() {
		var k [2]string
		for i, l := range m.GetLabel() { // sorted by name
			k[i] = l.GetValue()
		}
		out[k] = m.GetHistogram().GetSampleCount()
	}
	return out
}

// TestRequestsAreTimed: each operation on the store is counted under its name,
// whether it is done or failed; what a caller gave up is not; and there are no
// other labels than the eight from the start.
func TestRequestsAreTimed(t *testing.T) {
	s := embedded(t, t.TempDir(), "127.0.0.1:0")
	c := s.Client()
	want := requestCounts(t, c)
	if len(want) != 8 {
		t.Errorf("%d series at the start", len(want))
	}
	is := func(what string) {
		t.Helper()
		got := requestCounts(t, c)
		for k, n := range want {
			if got[k] != n {
				t.Errorf("%s: %d of %v, want %d", what, got[k], k, n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %v", what, got)
		}
		want = got
	}
	if _, err := c.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want[[2]string{"get", "ok"}]++
	is("get")
	if _, _, err := c.ReadKeys(t.Context(), 0, []string{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	want[[2]string{"get", "ok"}]++
	is("get of several")
	if _, _, err := c.Range(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	want[[2]string{"range", "ok"}]++
	is("range")
	if _, err := c.Commit(t.Context(), store.Commit{Puts: []store.Put{{Key: "a", Value: []byte("x")}}}); err != nil {
		t.Fatal(err)
	}
	want[[2]string{"commit", "ok"}]++
	is("commit")
	session, err := c.NewSession(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	want[[2]string{"lease", "ok"}] += 2
	is("lease")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(over, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	is("given up")

	away, err := New(Config{Endpoints: []string{"127.0.0.1:1"}, Timeout: 50 * time.Millisecond, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := away.Get(t.Context(), "a"); !errors.Is(err, model.ErrUnavailable) {
		t.Errorf("away: %v", err)
	}
	if n := requestCounts(t, away)[[2]string{"get", "failed"}]; n != 1 {
		t.Errorf("away: %d failures", n)
	}
	for _, err := range []error{away.Close(), c.Close()} {
		if err != nil {
			t.Error(err)
		}
	}
}
