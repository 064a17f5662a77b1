package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
)

// tablesOf asks a driver for its tables; one that has none answers none.
func tablesOf(can driver.Capabilities) map[string]driver.TableStats {
	if can.Tabled != nil {
		return can.Tabled.Tables()
	}
	return map[string]driver.TableStats{}
}

// tableMetrics are the metrics of the data plane's tables, and of the driver's
// repairs.
type tableMetrics struct{ can driver.Capabilities }

var (
	tableEntries  = prometheus.NewDesc("contiv_netplugin_table_entries", "Entries of a table of the data plane, at most some seconds old.", []string{"table"}, nil)
	tableCapacity = prometheus.NewDesc("contiv_netplugin_table_capacity", "Entries that a table has room for; absent if there is no limit.", []string{"table"}, nil)
	driftRepairs  = prometheus.NewDesc("contiv_netplugin_drift_repairs_total", "Parts of the data plane that were changed from outside and restored, by what: device, program, pin, entry (of a map), flow, port, rules (of nftables).", []string{"what"}, nil)
	tableEvicted  = prometheus.NewDesc("contiv_netplugin_table_evictions_total", "Entries that were evicted to make room for others; driver ebpf only.", []string{"table"}, nil)
)

// Describe implements prometheus.Collector.
func (t tableMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- tableEntries
	ch <- tableCapacity
	ch <- tableEvicted
	ch <- driftRepairs
}

// Collect implements prometheus.Collector.
func (t tableMetrics) Collect(ch chan<- prometheus.Metric) {
	for name, x := range tablesOf(t.can) {
		ch <- prometheus.MustNewConstMetric(tableEntries, prometheus.GaugeValue, float64(x.Entries), name)
		if x.Capacity > 0 {
			ch <- prometheus.MustNewConstMetric(tableCapacity, prometheus.GaugeValue, float64(x.Capacity), name)
		}
		if x.Evicts {
			ch <- prometheus.MustNewConstMetric(tableEvicted, prometheus.CounterValue, float64(x.Evicted), name)
		}
	}
	if t.can.Drifting != nil {
		for what, n := range t.can.Drifting.DriftRepairs() {
			ch <- prometheus.MustNewConstMetric(driftRepairs, prometheus.CounterValue, float64(n), what)
		}
	}
}
