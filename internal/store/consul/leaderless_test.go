package consul

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestRequestsWaitForALeader: while Consul has no leader requests wait for one, at the endpoints in
// turn, as long as for an answer, and then say what Consul says; what fails otherwise is
// told at once.
func TestRequestsWaitForALeader(t *testing.T) {
	var asked, answers atomic.Int64
	var refusal atomic.Value
	serve := func() string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) <= answers.Load() {
				http.Error(w, refusal.Load().(string), http.StatusInternalServerError)
				return
			}
			w.Header().Set("X-Consul-Index", "7")
			_, _ = w.Write([]byte(`{"Results":[],"Errors":null}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	c, err := New(Config{Endpoints: []string{serve()}, Timeout: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	try := func(refused int64, text string) error {
		asked.Store(0)
		answers.Store(refused)
		refusal.Store(text)
		_, err := c.CommitRevision(t.Context())
		return err
	}
	for _, text := range []string{"No cluster leader", "rpc error getting client: failed to get conn: dial tcp 127.0.0.1:8300: connect: connection refused"} {
		if err := try(3, text); err != nil || asked.Load() != 4 {
			t.Errorf("%q: %v after %d requests", text, err, asked.Load())
		}
	}
	if err := try(1<<40, "No cluster leader"); !errors.Is(err, model.ErrUnavailable) || !strings.Contains(err.Error(), "No cluster leader") || asked.Load() < 5 {
		t.Errorf("without a leader: %v after %d requests", err, asked.Load())
	}
	if err := try(1, "leadership lost while committing log"); !errors.Is(err, model.ErrUnavailable) || asked.Load() != 1 {
		t.Errorf("what may have been done: %v after %d requests", err, asked.Load())
	}
}
