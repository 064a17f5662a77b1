package relay

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// TestHubWithoutHeartbeatIsLeft: a netmaster that says nothing is left, and one that is slow is not.
func TestHubWithoutHeartbeatIsLeft(t *testing.T) {
	mine, theirs := net.Pipe()
	defer theirs.Close()
	c := &idleConn{ReadWriteCloser: mine}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 1); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
		}
	}()
	const patience = 240 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	begin := time.Now()
	go func() { left <- c.awaitNoHeartbeat(ctx, patience) }()
	for range 8 {
		_ = waiting.Pause(ctx, patience/4)
		if _, err := theirs.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	spoke := time.Now()
	select {
	case err := <-left:
		if time.Since(begin) < 4*patience {
			t.Errorf("left while it spoke: %v", err)
		}
	default:
	}
	if err := <-left; err != nil || time.Since(spoke) < patience/2 {
		t.Errorf("left after %s of silence: %v", time.Since(spoke), err)
	}
	// A reader that is busy has not heard silence.
	busy := &idleConn{ReadWriteCloser: mine}
	ctx2, cancel2 := context.WithTimeout(t.Context(), 2*patience)
	defer cancel2()
	if err := busy.awaitNoHeartbeat(ctx2, patience); err == nil {
		t.Error("left though nobody reads")
	}
	cancel()
	_ = mine.Close()
	<-read
}
