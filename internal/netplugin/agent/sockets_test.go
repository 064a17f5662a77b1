package agent

import (
	"os"
	"testing"
)

// TestRemovedSocketIsMadeAgain: a CNI socket whose file somebody removes is made again, and
// goes with the agent.
func TestRemovedSocketIsMadeAgain(t *testing.T) {
	b := newBed(t)
	b.ready()
	if err := os.Remove(b.cfg.Socket); err != nil {
		t.Fatal(err)
	}
	b.ready()
	b.stop()
	if _, err := os.Lstat(b.cfg.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket after the agent's end: %v", err)
	}
}
