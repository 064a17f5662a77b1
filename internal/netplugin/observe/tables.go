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
	tableEntries  = prometheus.NewDesc("contiv_netplugin_table_entries", "Entries of a table of the data plane, as of some seconds ago.", []string{"table"}, nil)
	tableCapacity = prometheus.NewDesc("contiv_netplugin_table_capacity", "Entries that the table has room for.", []string{"table"}, nil)
	driftRepairs  = prometheus.NewDesc("contiv_netplugin_drift_repairs_total", "Parts of the data plane that were removed or changed from outside and restored.", []string{"what"}, nil)
	tableEvicted  = prometheus.NewDesc("contiv_netplugin_table_evictions_total", "Entries that made room for others.", []string{"table"}, nil)
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
