package observe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// TestDrifted: a repair is reported by kind for an hour, also when the counters repeat it,
// and no longer.
func TestDrifted(t *testing.T) {
	var d drifted
	now := time.Date(2030, 1, 1, 12, 0, 30, 0, time.UTC)
	d.note(now, map[string]uint64{"flow": 0, "port": 0})
	if text := d.sentence(now); text != "" {
		t.Errorf("nothing was put back: %q", text)
	}
	d.note(now, map[string]uint64{"flow": 3, "port": 0})
	d.note(now.Add(time.Second), map[string]uint64{"flow": 3, "port": 0})
	d.note(now.Add(40*time.Minute), map[string]uint64{"flow": 5, "port": 1})
	for after, want := range map[time.Duration]string{
		41 * time.Minute: "restored 6 times in the last hour (flow 5, port 1)",
		59 * time.Minute: "restored 6 times in the last hour (flow 5, port 1)",
	} {
		if text := d.sentence(now.Add(after)); !strings.Contains(text, want) {
			t.Errorf("after %v: %q, want %q", after, text, want)
		}
	}
	if text := d.sentence(now.Add(61 * time.Minute)); !strings.Contains(text, "restored 3 times in the last hour (flow 2, port 1)") {
		t.Errorf("an hour after the first: %q", text)
	}
	if text := d.sentence(now.Add(101 * time.Minute)); text != "" || len(d.found) != 0 {
		t.Errorf("an hour after the last: %q, %d kept", text, len(d.found))
	}
	var clock drifted
	clock.note(time.Now(), map[string]uint64{"flow": 1})
	if at := clock.found[0].at.String(); !strings.Contains(at, " m=") { // as package time says of String
		t.Errorf("what was put back at %s is forgotten by the time of day, which may be set", at)
	}
	for i := range 1000 {
		d.note(now.Add(200*time.Minute+time.Duration(i)*10*time.Second), map[string]uint64{"flow": 10 + uint64(i)})
	}
	if n := len(d.found); n > 62 {
		t.Errorf("%d are kept", n)
	}
}

// drifts is a data plane whose counters stand at what is given.
type drifts map[string]uint64

func (d drifts) DriftRepairs() map[string]uint64 { return d }

func (drifts) DriftLately(time.Time) []string { return nil }

// TestDriftedByPass: each pass, also one that fails, notes what was put back until then:
// when somebody asks much later, it counts for when it was.
func TestDriftedByPass(t *testing.T) {
	a := &Observer{applyTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}), cfg: Config{Can: driver.Capabilities{Drifting: drifts{"flow": 7}}}}
	a.status = newStatus(a)
	a.Passed(statemirror.SyncStatus{Err: errors.New("no switch")})
	if text := a.drifted.sentence(time.Now()); !strings.Contains(text, "flow 7") {
		t.Errorf("after a pass: %q", text)
	}
}
