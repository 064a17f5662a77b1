package main

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A command inside ends when contivlab gets SIGTERM, and contivlab with its exit code.
func TestCommandsInsideGetSIGTERM(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
	}{
		{"echo; exec sleep 1000", 128 + 15},
		{"trap 'exit 7' TERM; echo; while :; do sleep 0.01; done", 7},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // by which it is killed
		cmd := exec.CommandContext(ctx, "sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		err = runForeground(cmd, func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			if _, err := out.Read(make([]byte, 1)); err != nil { // from now on the script is ready
				return err
			}
			return syscall.Kill(syscall.Getpid(), syscall.SIGTERM)
		})
		cancel()
		if got := exitCode(err); got != c.want {
			t.Errorf("%s: exit code %d (%v), want %d", c.script, got, err, c.want)
		}
	}
}
