//go:build integration

package chaos

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// clockDamages set clocks. They need programs whose clocks can be set (-clocks).
func clockDamages() []*mistake {
	if !*clocks {
		return nil
	}
	return []*mistake{
		{name: "a host's clock set", needs: []string{"agent@", "plane@"}, noticed: []string{"its clock is"}, well: true, do: setClock(false)},
		{name: "a host's clock set, and netplugin restarted", needs: []string{"agent@", "plane@"}, noticed: []string{"its clock is"}, well: true, do: setClock(true)},
		{name: "netmaster's clock set", needs: []string{"master", "store"}, well: true, do: setClock(false)},
		{name: "netmaster's clock set, and it is restarted", needs: []string{"master", "store"}, well: true, do: setClock(true)},
	}
}

// ahead is by how much clocks are set. A day back is what certificates bear that were just
// made.
var ahead = []time.Duration{-23 * time.Hour, -time.Hour, time.Hour, 23 * time.Hour, 72 * time.Hour}

// setClock sets the clock of a host's netplugin, or of netmaster.
func setClock(restart bool) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, r *rand.Rand) (undo, error) {
		set, start := w.SetMasterClock, func(ctx context.Context) error { _, err := restartMaster(ctx, w, nil, r); return err }
		if h != nil {
			set, start = h.SetClock, func(ctx context.Context) error { return w.restartAgent(ctx, h) }
		}
		by := ahead[r.IntN(len(ahead))]
		w.t.Logf("by %v", by)
		err := set(by)
		if restart && err == nil {
			err = start(ctx)
		}
		return func(context.Context) error { return set(0) }, err
	}
}
