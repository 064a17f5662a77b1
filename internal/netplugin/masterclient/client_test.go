package masterclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// TestFirstRequestWaitsForTheRegistry: a container that comes right after the agent's
// start waits for the registry to be read, for a while.
func TestFirstRequestWaitsForTheRegistry(t *testing.T) {
	tests := []struct {
		name  string
		after time.Duration // when a netmaster is known
		want  time.Duration // when wait returns
	}{
		{"known already", 0, 0},
		{"known soon", time.Second, time.Second},
		{"not known in time", time.Hour, 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := New(Config{Host: "h1", Allowed: func() error { return nil }})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				tell := func() {
					if err := m.set([]string{"http://127.0.0.1:1"}); err != nil {
						t.Error(err)
					}
				}
				if tt.after == 0 {
					tell()
				} else {
					defer time.AfterFunc(tt.after, tell).Stop()
				}
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				m.Await(ctx)
				if took := time.Since(start); took != tt.want {
					t.Errorf("after %v, want %v", took, tt.want)
				}
			})
		})
	}
}

// TestLogSaysWhatTheAgentWaitsFor: while an agent waits, the log says for what: for a netmaster, or for the store
// that lists them, and why the store fails.
func TestLogSaysWhatTheAgentWaitsFor(t *testing.T) {
	for want, away := range map[string]error{
		"waiting for a netmaster: none is registered": nil,
		"servers of different clusters":               errors.New("the endpoints are servers of different clusters"),
	} {
		synctest.Test(t, func(t *testing.T) {
			m, err := New(Config{Host: "h1", Allowed: func() error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			var out bytes.Buffer
			m.LogWaiting(ctx, slog.New(slog.NewTextHandler(&out, nil)), func() error { return away })
			if n := strings.Count(out.String(), want); n != 2 || away != nil && strings.Contains(out.String(), "none is registered") {
				t.Errorf("in 15 s it said %d times %q: %s", n, want, &out)
			}
		})
	}
}

// TestSecureHostAsksNoPlainNetmaster: a host asks each registered netmaster as it can. A host that has joined a
// secure cluster asks none without TLS, whatever was registered before.
func TestSecureHostAsksNoPlainNetmaster(t *testing.T) {
	list := []cluster.Service{
		{HostAddr: "10.0.0.1", Port: 1, Scheme: "http"},
		{HostAddr: "10.0.0.2", Port: 1, Scheme: "http", TLS: true},
		{HostAddr: "10.0.0.3", Port: 1, Scheme: "https"},
		{HostAddr: "10.0.0.4", Port: 1},
		{HostAddr: "10.0.0.5", Port: 1, Scheme: "ftp"},
	}
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "http://10.0.0.1:1 http://10.0.0.2:1 https://10.0.0.3:1 http://10.0.0.4:1"},
		{Config{TLS: &tls.Config{}}, "http://10.0.0.1:1 https://10.0.0.2:1 https://10.0.0.3:1 http://10.0.0.4:1"},
		{Config{TLS: &tls.Config{}, Joined: true}, "https://10.0.0.2:1 https://10.0.0.3:1"},
	} {
		m, err := New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.reachableURLs(list, slog.New(slog.DiscardHandler)); !slices.Equal(got, strings.Fields(tt.want)) {
			t.Errorf("joined %t, TLS %t: %q, want %q", tt.cfg.Joined, tt.cfg.TLS != nil, got, tt.want)
		}
	}
}
