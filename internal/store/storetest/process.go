package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// FreePort returns a loopback address that is the test's until it ends. Nothing listens
// there, no other test gets it, not even in another process, and the kernel assigns no
// ports of this range by itself.
func FreePort(tb testing.TB) string {
	tb.Helper()
	var errs error
	for range 100 {
		port := 15000 + rand.IntN(15000) // below net.ipv4.ip_local_port_range
		address := fmt.Sprintf("127.0.0.1:%d", port)
		// A name in the abstract namespace goes with the process that has it.
		claim, err := new(net.ListenConfig).Listen(tb.Context(), "unix", fmt.Sprintf("@contiv-test-port-%d", port))
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
		if err != nil {
			errs = errors.Join(errs, err, claim.Close())
			continue
		}
		tb.Cleanup(func() { _ = claim.Close() })
		if err := l.Close(); err != nil {
			tb.Fatal(err)
		}
		return address
	}
	tb.Fatal(errs)
	return ""
}

// Start runs a server of a store for the length of a test, in whose log the end of
// what it said is when the test has failed.
func Start(tb testing.TB, name, path string, args ...string) {
	tb.Helper()
	log, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	// It ends in Cleanup, after the clients.
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
