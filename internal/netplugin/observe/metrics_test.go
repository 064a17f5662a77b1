package observe

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store/memory"
)

// TestGroupSumsNeverFall: a group's sum does not fall when a port goes or its counter starts at
// zero again.
func TestGroupSumsNeverFall(t *testing.T) {
	m := hostMetricsOf(t, reference.New())
	ep := model.EndpointKey{Network: model.NetworkKey{Tenant: "blue", Name: "net1"}, ID: "e"}
	total := func(ports map[string]driver.PortStats) uint64 {
		m.add(driver.Stats{Ports: ports})
		return m.sums[trafficOf{network: "blue:net1"}].RxBytes
	}
	for i, tt := range []struct {
		ports map[string]driver.PortStats
		want  uint64
	}{
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 10}, "b": {Endpoint: ep, RxBytes: 5}}, 15},
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 12}}, 17},
		{map[string]driver.PortStats{"a": {Endpoint: ep, RxBytes: 3}, "b": {Endpoint: ep, RxBytes: 1}}, 21},
	} {
		if got := total(tt.ports); got != tt.want {
			t.Errorf("scrape %d: %d, want %d", i, got, tt.want)
		}
	}
}

// TestBusiestRulesKeepTheirSeries: of many rules the busiest get series and keep them, and all
// others share one; no sum ever falls, whatever the data plane's counters do.
func TestBusiestRulesKeepTheirSeries(t *testing.T) {
	m := hostMetricsOf(t, reference.New())
	all := map[string]driver.RuleStats{}
	for i := range 1000 {
		all[fmt.Sprintf("r%04d", i)] = driver.RuleStats{Packets: uint64(i)}
	}
	add := func(dropped uint64) {
		m.add(driver.Stats{Rules: maps.Clone(all), Drops: map[string]uint64{"policy": dropped}})
	}
	add(100)
	if len(m.rules) != maxRuleSeries || m.rules["r0999"].Packets != 999 || m.rest.Packets != 899*900/2 {
		t.Errorf("%d series, the rest %+v", len(m.rules), m.rest)
	}
	all["r0000"] = driver.RuleStats{Packets: 1 << 40}
	delete(all, "r0998")
	all["r0990"] = driver.RuleStats{Packets: 500} // one of its flows was taken away
	add(40)
	if len(m.rules) != maxRuleSeries || m.rules["r0000"].Packets != 1<<40 || m.rules["r0900"].Packets != 900 || m.rules["r0990"].Packets != 990 {
		t.Errorf("after a change: %d series, %+v", len(m.rules), m.rules["r0990"])
	}
	if m.rest.Packets != 899*900/2 || m.drops["policy"] != 100 {
		t.Errorf("after a change: the rest %+v, drops %v", m.rest, m.drops)
	}
	all["r0990"] = driver.RuleStats{Packets: 510}
	add(41)
	if m.rules["r0990"].Packets != 1000 || m.drops["policy"] != 101 {
		t.Errorf("in the end: %+v, drops %v", m.rules["r0990"], m.drops)
	}
}

// TestEarlierCountsAreNotExported: what was counted before the first scrape is not told: it
// would look like a sum that fell when netplugin restarts.
func TestEarlierCountsAreNotExported(t *testing.T) {
	before := driver.Stats{
		Ports: map[string]driver.PortStats{"a": {RxBytes: 1000}}, Rules: map[string]driver.RuleStats{"r": {Packets: 100}},
		Drops: map[string]uint64{"policy": 10},
	}
	now := driver.Stats{
		Ports: map[string]driver.PortStats{"a": {RxBytes: 1001}}, Rules: map[string]driver.RuleStats{"r": {Packets: 102}},
		Drops: map[string]uint64{"policy": 13},
	}
	drv := &counting{stats: before}
	m := hostMetricsOf(t, drv)
	for i, want := range [][3]uint64{{0, 0, 0}, {1, 2, 3}} {
		m.took = 0
		if err := m.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := [3]uint64{m.sums[trafficOf{network: otherSeries}].RxBytes, m.rules["r"].Packets, m.drops["policy"]}
		if got != want {
			t.Errorf("scrape %d: %v, want %v", i, got, want)
		}
		drv.stats = now
	}
}

// TestReadingIsBounded: however often it is scraped, a data plane that takes its
// time is read for a twentieth of it.
func TestReadingIsBounded(t *testing.T) {
	m := hostMetricsOf(t, reference.New())
	if err := m.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := m.at
	if m.rest != nil || len(m.drops) != len(driver.DropReasons) {
		t.Errorf("at first: %+v, drops %v", m.rest, m.drops)
	}
	m.took = time.Hour
	if err := m.read(t.Context()); err != nil || m.at != first {
		t.Errorf("read again at once: %v", err)
	}
	m.took = time.Second
	m.at = first.Add(-readShare * time.Second)
	if err := m.read(t.Context()); err != nil || !m.at.After(first) {
		t.Errorf("not read again in time: %v", err)
	}
}

// counting is a driver whose counters are given.
type counting struct {
	driver.Driver
	stats driver.Stats
}

func (c *counting) Stats(context.Context) (driver.Stats, error) { return c.stats, nil }

// hostMetricsOf are the metrics of a host that mirrors nothing.
func hostMetricsOf(t *testing.T, d driver.Driver) *hostMetrics {
	t.Helper()
	c, err := statemirror.New(statemirror.Config{Host: "h1", Store: memory.New(), Log: slog.New(slog.DiscardHandler), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return newHostMetrics(judge{}, d, c)
}
