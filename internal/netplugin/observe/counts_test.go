package observe

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// countingDriver returns the counts that it was given.
type countingDriver struct {
	driver.Driver
	stats driver.Stats
}

func (d countingDriver) Stats(context.Context) (driver.Stats, error) { return d.stats, nil }

// TestUncountedIsNowhereZero: what a data plane does not count is marked as such, for netmaster, in
// metrics and at /svcstats, and is nowhere zero.
func TestUncountedIsNowhereZero(t *testing.T) {
	shop, far := model.ServiceKey{Tenant: "t", Name: "shop"}, model.ServiceKey{Tenant: "t", Name: "far"}
	of := driver.ServiceOf{Service: shop, Backend: model.EndpointKey{ID: "b"}}
	for _, x := range []struct {
		stats     driver.Stats
		shop, far string // why, in the last line
		metrics   string
		at        map[string]string
	}{
		{driver.Stats{}, "", "", "service_connections service_connections_total", nil},
		{driver.Stats{Uncounted: map[model.ServiceKey]string{far: "no room"}}, "", "no room", "service_connections service_connections_total", map[string]string{"t:far": "no room"}},
		{driver.Stats{ConnectionsUnknown: "too many"}, "too many", "too many", "service_connections_total", map[string]string{"connections": "too many"}},
	} {
		x.stats.Services = map[driver.ServiceOf]driver.ServiceStats{of: {Total: 3, Connections: 2}}
		a := &Observer{cfg: Config{Driver: countingDriver{stats: x.stats}, Can: driver.Capabilities{ServiceStats: true}}}
		for service, want := range map[string]string{"t:shop": x.shop, "t:far": x.far} {
			lines := a.counts(t.Context(), service)
			if last := lines[len(lines)-1]; last.Event != api.FlowCounted || last.Text != want {
				t.Errorf("%+v: of %s the last line is %+v, want %q", x.stats, service, last, want)
			}
			if told := len(lines) == 2 && lines[0].Served.Total == 3; told != (service == "t:shop") {
				t.Errorf("%+v: of %s: %+v", x.stats, service, lines)
			}
		}
		m, told := serviceSums{}, ""
		m.add(x.stats.Services, nil)
		note := func(d *prometheus.Desc) {
			for _, name := range []string{"service_connections_total", "service_connections"} {
				if strings.Contains(d.String(), "netplugin_"+name+"\"") {
					told = strings.TrimSpace(name + " " + told)
				}
			}
		}
		m.collect(x.stats.ConnectionsUnknown == "", func(d *prometheus.Desc, _ float64, _ ...string) { note(d) }, func(d *prometheus.Desc, _ uint64, _ ...string) { note(d) })
		if fields := strings.Fields(told); len(fields) != len(strings.Fields(x.metrics)) {
			t.Errorf("%+v: metrics %q, want %q", x.stats, told, x.metrics)
		}
		got := uncounted(x.stats)
		if len(got) != len(x.at) {
			t.Errorf("%+v: /svcstats has %v, want %v", x.stats, got, x.at)
		}
		for k, want := range x.at {
			if got[k] != want {
				t.Errorf("%+v: /svcstats has %v, want %v", x.stats, got, x.at)
			}
		}
	}
}

// TestServicePartsAreSummed: counts of a service's parts, at other nodes' addresses, are summed
// under the service.
func TestServicePartsAreSummed(t *testing.T) {
	whole := model.ServiceKey{Tenant: "default", Name: "shop/web"}
	parts := []model.ServiceKey{whole, desired.KeyAtNode(whole, "h2"), desired.KeyAtNode(whole, "")}
	stats := map[driver.ServiceOf]driver.ServiceStats{}
	for _, k := range parts {
		stats[driver.ServiceOf{Service: k}] = driver.ServiceStats{Total: 3, Connections: 1}
	}
	m := serviceSums{}
	m.add(stats, nil)
	if s := m[whole.String()]; len(m) != 1 || s == nil || s.Total != 9 || s.Connections != 3 {
		t.Errorf("metrics of %v: %+v, want 9 connections of one, 3 of which live", m, s)
	}
	if got := uncounted(driver.Stats{Uncounted: map[model.ServiceKey]string{parts[1]: "no room"}}); len(got) != 1 || got[whole.String()] != "no room" {
		t.Errorf("/svcstats has %v", got)
	}
}
