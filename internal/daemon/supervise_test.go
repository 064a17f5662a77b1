package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestSystemdHearsReadyAliveAndStopping: systemd hears that a program is ready when it is and not
// before, then that it is alive while it is, and that it ends.
func TestSystemdHearsReadyAliveAndStopping(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "300000")
	var ready, alive atomic.Bool
	alive.Store(true)
	hear := func() string {
		t.Helper()
		if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1000)
		n, err := l.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	state := func(b *atomic.Bool) func(context.Context) error {
		return func(context.Context) error {
			if b.Load() {
				return nil
			}
			return errors.New("not yet")
		}
	}
	go func() {
		defer close(done)
		Supervise(ctx, slog.New(slog.DiscardHandler), state(&ready), state(&alive))
	}()
	for _, want := range []string{"STATUS=starting", "STATUS=waiting: not yet"} {
		if got := hear(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	ready.Store(true)
	if got := hear(); !strings.HasPrefix(got, "READY=1") {
		t.Errorf("heard %q, want READY=1", got)
	}
	if got := hear(); got != "WATCHDOG=1" {
		t.Errorf("heard %q, want WATCHDOG=1", got)
	}
	alive.Store(false)
	stop()
	<-done
	got := hear()
	for got == "WATCHDOG=1" {
		got = hear()
	}
	if got != "STOPPING=1" {
		t.Errorf("heard %q, want STOPPING=1", got)
	}
}
