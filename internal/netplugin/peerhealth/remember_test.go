package peerhealth

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
)

// TestPreviousAnswersAreRemembered: a process that starts while a host is dead concludes from its silence if
// the host answered a former run at the same address, and not otherwise. The hosts that
// answered are saved for the next run.
func TestPreviousAnswersAreRemembered(t *testing.T) {
	withinOf(t, 8, func(w *world) map[model.HostName]netip.Addr {
		for i := range 3 { // not heard of by netmasters, and dead
			w.peers[i].Away = true
			w.dead[w.peers[i].Addr] = true
		}
		return map[model.HostName]netip.Addr{"h1": w.peers[0].Addr, "h2": netip.MustParseAddr("10.9.9.9")}
	}, func(w *world) {
		w.passes(time.Minute)
		for name, want := range map[model.HostName]bool{"h1": true, "h2": false, "h3": false, "h4": false} {
			if w.isUnreachable(name) != want {
				t.Errorf("%s is silent: %v", name, !want)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		want := map[model.HostName]netip.Addr{"h1": w.peers[0].Addr}
		for _, p := range w.peers[3:] {
			want[p.Name] = p.Addr
		}
		if !maps.Equal(w.remembered, want) {
			t.Errorf("kept: %v, want %v", w.remembered, want)
		}
	})
}
