package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestTroubleIsReportedOnceAMinute: with the store away for an hour, a line a minute for each
// thing that is tried, however often.
func TestTroubleIsReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := &member{log: slog.New(slog.NewTextHandler(&log, nil))}
		one, other := m.storeErrorLogger("the election"), m.storeErrorLogger("the election")
		for range 3600 * 4 {
			one(errors.New("away"))
			other(errors.New("away"))
			<-time.After(250 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "\n"); n != 60 {
			t.Errorf("%d lines in an hour, want 60", n)
		}
		m.storeErrorLogger("the registry")(errors.New("away"))
		if !strings.Contains(log.String(), "the registry") {
			t.Error("another trouble is not told")
		}
	})
}

// heardOf are agents that a netmaster hears of.
type heardOf struct {
	mu         sync.Mutex
	unreported []model.HostName
	deaf       error
}

func (h *heardOf) TakeUnreported() []model.HostName {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.unreported)
}

func (h *heardOf) Requeue([]model.HostName) {}

func (h *heardOf) SetLeaderLost(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deaf = why
}

// TestFollowersReportHeartbeatsToTheLeader: a netmaster tells the one that leads which agents it hears of,
// and counts as deaf while it does not reach it.
func TestFollowersReportHeartbeatsToTheLeader(t *testing.T) {
	told := make(chan string, 100)
	var gone atomic.Bool
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req api.HostHeartbeats
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/plugin/hostsHeard" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if gone.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `"ok"`)
		told <- strings.Join(req.Hosts, " ")
	}))
	t.Cleanup(leader.Close)
	st := memory.New()
	_, err := st.Update(t.Context(), func(tx store.Tx) error {
		tx.Put(cluster.LeaderKey, []byte(leader.Listener.Addr().String()), nil)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := &heardOf{unreported: []model.HostName{"h1", "h2"}}
	m := &member{store: st, address: "10.0.0.9:9999", scheme: "http", agents: h, log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.sendHeartbeatsToLeader(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	if got := <-told; got != "h1 h2" {
		t.Errorf("the leader was told of %q", got)
	}
	deaf := func(want bool) {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for late := time.After(time.Minute); ; {
			h.mu.Lock()
			is := h.deaf != nil
			h.mu.Unlock()
			if is == want {
				return
			}
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("deaf: %t, want %t", is, want)
			}
		}
	}
	gone.Store(true)
	deaf(true)
	gone.Store(false)
	deaf(false)
}
