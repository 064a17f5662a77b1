package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTroubleIsTold: with the store away for an hour, a line a minute for each
// thing that is tried, however often.
func TestTroubleIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		m := &member{log: slog.New(slog.NewTextHandler(&log, nil))}
		one, other := m.trouble("the election"), m.trouble("the election")
		for range 3600 * 4 {
			one(errors.New("away"))
			other(errors.New("away"))
			<-time.After(250 * time.Millisecond)
		}
		if n := strings.Count(log.String(), "\n"); n != 60 {
			t.Errorf("%d lines in an hour, want 60", n)
		}
		m.trouble("the registry")(errors.New("away"))
		if !strings.Contains(log.String(), "the registry") {
			t.Error("another trouble is not told")
		}
	})
}
