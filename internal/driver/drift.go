package driver

import (
	"log/slog"
	"maps"
	"sync"
)

// Drifting is a driver that tells how often it put back what somebody else had
// taken from the data plane or changed in it.
type Drifting interface {
	DriftRepairs() map[string]uint64 // by what it was: one of the Drift constants
}

// What drifts.
const (
	DriftDevice  = "device"  // the tunnel's, or the host's interface to its containers
	DriftProgram = "program" // what runs on an interface
	DriftPin     = "pin"     // what a restarted agent finds the data plane by
	DriftFlow    = "flow"    // of a switch
	DriftPort    = "port"    // of a switch, or its bridge
)

// Drift counts repairs, and logs each. Its methods may be called from several
// goroutines.
type Drift struct {
	mu sync.Mutex
	n  map[string]uint64
}

// Repaired records that n objects of a kind were put back.
func (d *Drift) Repaired(log *slog.Logger, what, object string, n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	if d.n == nil {
		d.n = map[string]uint64{}
	}
	d.n[what] += uint64(n)
	d.mu.Unlock()
	log.Warn("put back what somebody else had changed", "what", what, "object", object, "count", n)
}

// DriftRepairs implements Drifting.
func (d *Drift) DriftRepairs() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]uint64{DriftDevice: 0, DriftProgram: 0, DriftPin: 0, DriftFlow: 0, DriftPort: 0}
	maps.Copy(out, d.n)
	return out
}
