package daemon

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
)

// firstLine hands the first line of a log over.
type firstLine chan string

func (f firstLine) Write(p []byte) (int, error) {
	select {
	case f <- string(p):
	default:
	}
	return len(p), nil
}

// TestHangupStopsNoDaemon: SIGHUP ends no daemon, neither before it logs nor after; it is
// told in the log.
func TestHangupStopsNoDaemon(t *testing.T) {
	var stderr bytes.Buffer
	code := Run("test", &stderr, func(ctx context.Context) error {
		hangUp := func() {
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil {
				t.Error(err)
			}
		}
		hangUp()
		line := make(firstLine, 1)
		lctx, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			LogHangups(lctx, slog.New(slog.NewTextHandler(io.Writer(line), nil)), nil)
		}()
		for told := false; !told; { // it may not listen yet
			hangUp()
			select {
			case text := <-line:
				told = true
				if !strings.Contains(text, "SIGHUP has no effect") {
					t.Errorf("log: %s", text)
				}
			case <-ctx.Done():
				t.Error("SIGHUP has ended it")
				told = true
			default:
			}
		}
		stop()
		<-done
		return nil
	})
	if code != ExitOK || stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %s", code, stderr.String())
	}
}
