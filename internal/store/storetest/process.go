package storetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// FreePort returns a loopback address that nobody listened on a moment ago.
func FreePort(tb testing.TB) string {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Start runs a server of a store for the length of a test, in whose log the end of
// what it said is when the test has failed.
func Start(tb testing.TB, name, path string, args ...string) {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	// It ends in Cleanup, after those that use it.
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if tb.Failed() {
			text, _ := os.ReadFile(log.Name())
			tb.Logf("%s said:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
}
