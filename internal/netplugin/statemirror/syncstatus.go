package statemirror

import (
	"context"
	"sync"
	"time"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// SyncStatus is what a pass reached.
type SyncStatus struct {
	At       time.Time
	Took     time.Duration
	Revs     Revs // of its desired state
	Report   driver.Report
	Refused  []string // ports of the report that fail, but for an interface that is not there yet
	Problems []compile.Problem
	Ports    uint64                                          // the last change of published ports that is in the host's stack
	VLAN     bool                                            // the desired state has VLAN networks: those with containers here
	Networks desired.Map[model.NetworkID, *desired.Network]  // of the desired state
	Services desired.Map[model.ServiceKey, *desired.Service] // of the desired state
	Err      error                                           // of the data plane as a whole
}

// SyncTracker holds the newest SyncStatus and lets others wait for the next.
type SyncTracker struct {
	again   waiting.Changes
	mu      sync.Mutex
	last    SyncStatus
	passes  uint64
	errors  uint64
	changes uint64
}

// Set has everybody who waits look again.
func (p *SyncTracker) Set(o SyncStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.Err != nil {
		// The last report still tells what the data plane holds, but no port may
		// be taken for programmed while it does not follow.
		p.errors++
		o.Report, o.Refused, o.Revs, o.Ports = p.last.Report, p.last.Refused, nil, p.last.Ports
	}
	p.passes++
	p.changes += uint64(max(o.Report.Changes, 0))
	p.last = o
	p.again.Notify()
}

// Until waits for an outcome that ok accepts, or refuses with an error, which it
// returns; or for ctx's end.
func (p *SyncTracker) Until(ctx context.Context, ok func(SyncStatus) (bool, error)) error {
	return p.again.Until(ctx, func() (bool, error) {
		o, _ := p.Get()
		return ok(o)
	})
}

// Totals counts passes, passes that failed as a whole, and changes of the data plane.
func (p *SyncTracker) Totals() (passes, errors, changes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passes, p.errors, p.changes
}

// Get returns the newest outcome, and a channel that is closed when there is
// another.
func (p *SyncTracker) Get() (SyncStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.again.Next()
}

// ProblemTexts returns what is not as wanted: object -> sentence.
func (o *SyncStatus) ProblemTexts() map[string]string {
	out := make(map[string]string, len(o.Problems))
	for _, p := range o.Problems {
		out[p.Object] = p.Text
	}
	for _, p := range o.Report.Problems {
		out[p.Object] = p.Err.Error()
	}
	for _, name := range o.Refused {
		out["port "+name] = o.Report.Ports.Err(name).Error()
	}
	return out
}

// CountPorts tells how many ports are programmed, and how many wanted but not.
func (o *SyncStatus) CountPorts() (programmed, pending int) {
	for _, st := range o.Report.Ports.All() {
		if st.Err == nil {
			programmed++
		} else {
			pending++
		}
	}
	return programmed, pending
}
