package controller

import "github.com/prometheus/client_golang/prometheus"

var (
	inSync   = prometheus.NewDesc("contiv_netmaster_aci_in_step", "1 while the ACI fabric was in sync at the last check, else 0; reported by the leader.", nil, nil)
	failures = prometheus.NewDesc("contiv_netmaster_aci_failures", "Consecutive failed attempts to configure the ACI fabric; reported by the leader.", nil, nil)
	problems = prometheus.NewDesc("contiv_netmaster_aci_problems", "Parts of the ACI fabric's configuration that are not in force; reported by the leader.", nil, nil)
	writes   = prometheus.NewDesc("contiv_netmaster_aci_writes_total", "Requests that changed something in the ACI fabric, since this netmaster leads.", nil, nil)
)

// Describe is prometheus.Collector's.
func (k *Controller) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inSync, failures, problems, writes} {
		to <- d
	}
}

// Collect is prometheus.Collector's. There is nothing to tell where nothing is kept.
func (k *Controller) Collect(to chan<- prometheus.Metric) {
	s, keeps := k.State()
	if !keeps {
		return
	}
	is := 0.0
	if s.InSync {
		is = 1
	}
	to <- prometheus.MustNewConstMetric(inSync, prometheus.GaugeValue, is)
	to <- prometheus.MustNewConstMetric(failures, prometheus.GaugeValue, float64(s.Failures))
	to <- prometheus.MustNewConstMetric(problems, prometheus.GaugeValue, float64(len(k.config.Control.Current().Settings.AciFabric().Problems)))
	to <- prometheus.MustNewConstMetric(writes, prometheus.CounterValue, float64(s.Writes))
}
