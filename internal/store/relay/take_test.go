package relay

import (
	"errors"
	"testing"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
)

// TestLastMessageBeforeTheBreakIsTaken: what a netmaster told just before its connection broke is taken, whichever of
// the two is noticed first.
func TestLastMessageBeforeTheBreakIsTaken(t *testing.T) {
	for i := range 20_000 {
		l := &link{done: make(chan struct{}), why: errors.New("it broke")}
		f := &follow{wake: waiting.NewBell()}
		go func() {
			l.mu.Lock()
			f.queue = append(f.queue, api.MirrorMessage{ID: 7})
			f.wake.Ring()
			l.mu.Unlock()
			close(l.done)
		}()
		if got, _, err := l.take(t.Context(), f, false); err != nil || len(got) != 1 {
			t.Fatalf("the %dth is lost: %v, %v", i, got, err)
		}
		if got, _, err := l.take(t.Context(), f, false); err == nil {
			t.Fatalf("after the end comes %v", got)
		}
	}
}
