package ovs

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/ovs/ovstest"
)

// TestFlowCountsOfTwoDatapathsAreRead reads what Open vSwitch says of two datapaths.
func TestFlowCountsOfTwoDatapathsAreRead(t *testing.T) {
	const text = `netdev@ovs-netdev:
  flows         : (current 8) (avg 5) (max 12) (limit 200000)
  offloaded flows : 0
  dump duration : 1ms
  ufid enabled : true

  1: (keys 8)
system@ovs-system:
  flows         : (current 77) (avg 70) (max 99) (limit 10000)
  dump duration : 1ms
`
	for datapath, want := range map[string]driver.TableStats{
		"netdev": {Entries: 8, Capacity: 200000}, "system": {Entries: 77, Capacity: 10000},
	} {
		if got, err := datapathFlows(text, datapath); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", datapath, got, err, want)
		}
	}
	if got, err := datapathFlows(text, "dummy"); err == nil {
		t.Errorf("of a datapath that is not there: %+v", got)
	}
}

// tellsTables: the driver reports its flows, the datapath's cached flows under traffic, and
// tracked connections, with their limits.
func (l *live) tellsTables(t *testing.T) {
	t.Helper()
	got := l.drv.Tables()
	for start := time.Now(); got[tableDatapath].Entries == 0 && time.Since(start) < 10*time.Second; { // just purged
		l.drv.tables.at = time.Time{}
		got = l.drv.Tables()
	}
	if s := got[tableFlows]; s.Entries < 50 || s.Capacity != 0 {
		t.Errorf("flows: %+v", s)
	}
	if s := got[tableDatapath]; s.Entries == 0 || s.Capacity < 1000 {
		t.Errorf("cached flows: %+v", s)
	}
	s, there := got[tableConns]
	if ovstest.Kernel() { // it tells of the test's own namespace
		if _, err := os.Stat(conntrackCount); there == errors.Is(err, os.ErrNotExist) || there && s.Capacity == 0 {
			t.Errorf("connections: %+v, told: %v, %v", s, there, err)
		}
	} else if s.Entries == 0 || s.Capacity < 1000 {
		t.Errorf("connections: %+v", s)
	}
	before := l.drv.tables.at
	l.drv.Tables()
	if l.drv.tables.at != before {
		t.Error("the switch is asked each time")
	}
}
