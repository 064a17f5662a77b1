package agent

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/netplugin/multicast"
)

// groupsFile is where members of multicast groups outlast netplugin.
const groupsFile = "multicast.json"

// newListener returns what knows who hears multicast; nil = the driver cannot say.
func newListener(cfg *Config, plane driver.Memberships, kick func(reason string)) *multicast.Listener {
	if plane == nil {
		return nil
	}
	return multicast.New(multicast.Config{
		Plane: plane, File: filepath.Join(cfg.StateDir, groupsFile), Log: cfg.Log,
		Changed: func() { kick("members of multicast groups") },
	})
}

// members counts who hears what.
type members struct{ of *multicast.Listener }

var (
	membersDesc = prometheus.NewDesc("contiv_netplugin_multicast_members",
		"Multicast groups that endpoints here have joined, counted per endpoint.", nil, nil)
	membersRefusedDesc = prometheus.NewDesc("contiv_netplugin_multicast_refused_total",
		"Multicast joins of endpoints here that were refused for lack of room: an endpoint may join 64 groups, all on a host together 16,384.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m members) Describe(ch chan<- *prometheus.Desc) { ch <- membersDesc; ch <- membersRefusedDesc }

// Collect implements prometheus.Collector.
func (m members) Collect(ch chan<- prometheus.Metric) {
	n, refused := 0, uint64(0)
	if m.of != nil {
		n, refused = m.of.Refused()
	}
	ch <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(n))
	ch <- prometheus.MustNewConstMetric(membersRefusedDesc, prometheus.CounterValue, float64(refused))
}
