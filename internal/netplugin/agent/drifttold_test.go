package agent

import (
	"fmt"
	"net/http"
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

// RecentDrift has what was put back half an hour ago.
func (driftedPlane) RecentDrift(since time.Time) []string {
	if time.Since(since) < 30*time.Minute {
		return nil
	}
	return []string{"flow contivBr"}
}

// TestDriftIsACondition: what the driver has put back within the last hour is a condition of
// the host, a warning with which all is well; its status has it, and an inspection reports
// it once.
func TestDriftIsACondition(t *testing.T) {
	b := newBed(t, func(c *Config) { c.StatusLook, c.StatusBeat = 20*time.Millisecond, time.Hour })
	defer http.DefaultClient.CloseIdleConnections()
	b.ready()
	b.says(http.StatusOK)
	b.stop()
	b.fake = b.fake.Restart()
	b.startWith(driftedPlane{b.fake})
	b.ready()
	b.says(http.StatusOK, "drift")
	for range 2 {
		found := slices.DeleteFunc(b.agent.Observer.Inspect(t.Context()).Findings, func(f api.Finding) bool { return f.Check != api.CheckDataPlane })
		if len(found) != 1 || found[0].Name != "drift" || !strings.HasSuffix(found[0].Text, "in the last hour, the latest first: flow contivBr") || found[0].Severity != api.SeverityWarning {
			t.Errorf("found %+v", found)
		}
	}
	b.eventually("the status has the condition", func() error {
		s, _, err := b.hostStatus()
		if err == nil && (!s.Ready || len(s.Conditions) != 1 || s.Conditions[0].Name != "drift" || s.Conditions[0].Severity != api.SeverityWarning) {
			err = fmt.Errorf("status %+v", s)
		}
		return err
	})
}
