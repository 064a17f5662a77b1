package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// A monitor's request is seen by who watches, and goes with its session, also
// when that is lost.
func TestMonitorsGoWithTheirSession(t *testing.T) {
	st := memory.New()
	defer st.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan []cluster.MonitorRequest, 16)
	ended := make(chan error, 1)
	go func() {
		ended <- cluster.WatchMonitors(ctx, st, func(list []cluster.MonitorRequest) error {
			seen <- list
			return nil
		})
	}()
	expect := func(want ...cluster.MonitorRequest) {
		t.Helper()
		for {
			select {
			case got := <-seen:
				if len(got) != len(want) {
					continue
				}
				if diff := cmp.Diff(want, got); diff != "" && len(want) > 0 {
					t.Fatalf("requests (-want +got):\n%s", diff)
				}
				return
			case <-ctx.Done():
				t.Fatalf("no list of %d requests came", len(want))
			}
		}
	}
	expect()
	a := cluster.MonitorRequest{ID: "a", Address: "192.0.2.1:9999", Connections: true, From: "web"}
	b := cluster.MonitorRequest{ID: "b", Address: "192.0.2.2:9999", Host: "h1"}
	sb, err := cluster.OpenMonitor(ctx, st, b)
	if err != nil {
		t.Fatal(err)
	}
	expect(b)
	if _, err := cluster.OpenMonitor(ctx, st, a); err != nil {
		t.Fatal(err)
	}
	expect(a, b)
	if err := sb.Close(); err != nil {
		t.Fatal(err)
	}
	expect(a)
	st.ExpireSessions()
	expect()
	if _, err := cluster.OpenMonitor(ctx, st, cluster.MonitorRequest{ID: "c"}); err == nil {
		t.Error("a request without an address was taken")
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cluster.WatchMonitors() = %v", err)
	}
}
