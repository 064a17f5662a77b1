package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
)

// driftedPlane is a data plane to which somebody has done something before.
type driftedPlane struct{ *reference.Driver }

func (d driftedPlane) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Drifting = d
	return c
}

func (driftedPlane) DriftRepairs() map[string]uint64 {
	return map[string]uint64{driver.DriftFlow: 12, driver.DriftPort: 0}
}

// DriftLately has only what was put back before somebody asked.
func (driftedPlane) DriftLately(since time.Time) []string {
	if time.Since(since) < time.Minute {
		return nil
	}
	return []string{"flow contivBr"}
}

// TestDriftIsReportedOnce: an inspection tells what the agent has put back by itself, once, and not
// as if this look had found it.
func TestDriftIsReportedOnce(t *testing.T) {
	b := newBed(t)
	b.ready()
	of := func() []api.Finding {
		return slices.DeleteFunc(b.agent.Observer.Inspect(t.Context()).Findings, func(f api.Finding) bool { return f.Check != api.CheckDataPlane })
	}
	if found := of(); len(found) != 0 {
		t.Errorf("nothing was put back: %+v", found)
	}
	b.stop()
	b.fake = b.fake.Restart()
	b.startWith(driftedPlane{b.fake})
	b.ready()
	for range 2 {
		if found := of(); len(found) != 1 || !strings.Contains(found[0].Text, "restored 12 times in the last hour (flow 12)") || !strings.HasSuffix(found[0].Text, ": flow contivBr") || found[0].Severity != api.SeverityWarning || found[0].Remedy == "" {
			t.Errorf("found %+v", found)
		}
	}
}
