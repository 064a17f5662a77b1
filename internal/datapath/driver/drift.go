package driver

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// DriftReporter is a driver that tells how often it put back what somebody else had
// taken from the data plane or changed in it.
type DriftReporter interface {
	DriftRepairs() map[string]uint64 // by what it was: one of the Drift constants
	// RecentDrift names what was put back since then, the newest first, each once, ten at
	// most.
	RecentDrift(since time.Time) []string
}

// What drifts.
const (
	DriftDevice  = "device"  // the tunnel's, or the host's interface to its containers
	DriftProgram = "program" // what runs on an interface
	DriftPin     = "pin"     // what a restarted agent finds the data plane by
	DriftEntry   = "entry"   // of a map
	DriftFlow    = "flow"    // of a switch
	DriftPort    = "port"    // of a switch, or its bridge
	DriftRules   = "rules"   // of nftables, which the host's stack needs for the data plane
)

// Drift counts repairs, and logs each. Its methods may be called from several
// goroutines.
type Drift struct {
	mu   sync.Mutex
	n    map[string]uint64
	last []repair // by name, newest last
}

// repair is what was put back, and when last.
type repair struct {
	at   time.Time
	name string
}

const (
	driftRemembered = 64 // names that are remembered
	driftReported   = 10 // names in one report
)

// Add records that n objects of a kind were put back.
func (d *Drift) Add(log *slog.Logger, what, object string, n int) {
	if n == 0 {
		return
	}
	d.mu.Lock()
	if d.n == nil {
		d.n = map[string]uint64{}
	}
	d.n[what] += uint64(n)
	name := what + " " + object
	d.last = append(slices.DeleteFunc(d.last, func(r repair) bool { return r.name == name }), repair{time.Now(), name})
	d.last = d.last[max(0, len(d.last)-driftRemembered):]
	d.mu.Unlock()
	log.Warn("repaired a change that was not made by Contiv", "what", what, "object", object, "count", n)
}

// DriftRepairs implements DriftReporter.
func (d *Drift) DriftRepairs() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]uint64{DriftDevice: 0, DriftProgram: 0, DriftPin: 0, DriftEntry: 0, DriftFlow: 0, DriftPort: 0, DriftRules: 0}
	maps.Copy(out, d.n)
	return out
}

// RecentDrift implements DriftReporter.
func (d *Drift) RecentDrift(since time.Time) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range slices.Backward(d.last) {
		if r.at.Before(since) || len(names) == driftReported {
			break
		}
		names = append(names, r.name)
	}
	return names
}

// DriftReporters are several that report as one.
type DriftReporters []DriftReporter

// DriftRepairs implements DriftReporter.
func (rs DriftReporters) DriftRepairs() map[string]uint64 {
	out := map[string]uint64{}
	for _, r := range rs {
		for what, n := range r.DriftRepairs() {
			out[what] += n
		}
	}
	return out
}

// RecentDrift implements DriftReporter; the newest are first of each reporter.
func (rs DriftReporters) RecentDrift(since time.Time) (names []string) {
	for _, r := range rs {
		names = append(names, r.RecentDrift(since)...)
	}
	return names[:min(len(names), driftReported)]
}
