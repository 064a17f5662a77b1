package ovs

import (
	"context"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/pipeline"
)

// TestFloodOfOneEndpointLeavesOthersTheirEvents: of one endpoint's flood of connections that an audit concerns a
// bounded part is reported, the rest is counted, and others' are reported meanwhile; also
// after the switch came back without its meters.
func TestFloodOfOneEndpointLeavesOthersTheirEvents(t *testing.T) {
	a := newAuditing(t)
	defer a.drv.Close()
	a.apply(t, a.with)
	events, err := a.drv.Monitor(t.Context(), driver.MonitorOptions{NoDrops: true})
	if err != nil {
		t.Fatal(err)
	}
	const flood, other = 3000, 20
	began := time.Now()
	a.connect(t, a.from, a.to, flood)
	a.connect(t, a.to, a.from, other)
	seconds := uint64(time.Since(began)/time.Second) + 2 // with a burst
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told, lost, others := uint64(0), uint64(0), uint64(0)
	for told+lost < flood || others < other {
		select {
		case e := <-events:
			switch {
			case e.Kind == driver.FlowLost:
				lost += e.Count
			case e.Kind == driver.FlowWouldDeny && e.Src == a.from.IPv4:
				told += e.Count
			case e.Kind == driver.FlowWouldDeny && e.Src == a.to.IPv4:
				others += e.Count
			default:
				t.Fatalf("unexpected event %+v", e)
			}
		case <-ctx.Done():
			t.Fatalf("%d told and %d lost of %d, %d of another's %d", told, lost, flood, others, other)
		}
	}
	if told == 0 || told > pipeline.AuditRate*seconds {
		t.Errorf("%d connections of one endpoint were told within %d s; at most %d a second", told, seconds, pipeline.AuditRate)
	}
	t.Logf("%d told and %d lost of %d", told, lost, flood)
	a.KillSwitch()
	a.StartSwitch()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if e.Kind == driver.FlowWouldDeny {
				return
			}
		case <-tick.C:
			if err := a.wires[a.from.IfName].send(a.first(a.from, a.to, 1)); err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatal("nothing was told after the switch came back")
		}
	}
}
