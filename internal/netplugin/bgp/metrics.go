package bgp

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gatherTime bounds one look for metrics.
const gatherTime = 5 * time.Second

var (
	upDesc = prometheus.NewDesc("contiv_netplugin_bgp_session_up",
		"1 while there is a session with a BGP neighbor, else 0.", []string{"neighbor"}, nil)
	flapsDesc = prometheus.NewDesc("contiv_netplugin_bgp_session_ends_total",
		"Sessions with a BGP neighbor that ended.", []string{"neighbor"}, nil)
	prefixesDesc = prometheus.NewDesc("contiv_netplugin_bgp_prefixes",
		"Prefixes of a BGP neighbor, by kind: received, accepted, announced.", []string{"neighbor", "kind"}, nil)
	rejectedDesc = prometheus.NewDesc("contiv_netplugin_bgp_prefixes_rejected",
		"Prefixes received from a BGP neighbor and not accepted, by reason.", []string{"neighbor", "reason"}, nil)
)

// Collector is a speaker's metrics. It offers none once the speaker is closed.
type Collector struct{ Speaker *Speaker }

// Describe sends what Collect may.
func (Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- upDesc
	ch <- flapsDesc
	ch <- prefixesDesc
	ch <- rejectedDesc
}

// Collect sends how each neighbor fares.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), gatherTime)
	defer cancel()
	st, err := c.Speaker.State(ctx)
	if err != nil { // it is closed
		return
	}
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	for _, p := range st.Peers {
		who, up := p.Address.String(), 0.0
		if p.State == Established {
			up = 1
		}
		send(upDesc, prometheus.GaugeValue, up, who)
		send(flapsDesc, prometheus.CounterValue, float64(p.Flaps), who)
		send(prefixesDesc, prometheus.GaugeValue, float64(p.Received), who, "received")
		send(prefixesDesc, prometheus.GaugeValue, float64(p.Accepted), who, "accepted")
		send(prefixesDesc, prometheus.GaugeValue, float64(p.Announced), who, "announced")
		for why, n := range p.Why {
			send(rejectedDesc, prometheus.GaugeValue, float64(n), who, why)
		}
	}
}
