package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/agent/probing"
)

// newProber returns what asks hosts that are away; nil = nobody does.
func (a *Agent) newProber() *probing.Prober {
	if a.cfg.Probe == nil {
		return nil
	}
	peers := func() ([]probing.Peer, bool, <-chan struct{}) {
		list, many, changed := a.cluster.Peers()
		out := make([]probing.Peer, len(list))
		for i, p := range list {
			out[i] = probing.Peer(p)
		}
		return out, many, changed
	}
	return probing.New(probing.Config{Peers: peers, Ask: a.cfg.Probe, Silent: a.cluster.SetSilent, Log: a.log})
}

// peers counts other hosts by what probes have found.
type peers struct{ of *probing.Prober }

var peersDesc = prometheus.NewDesc("contiv_netplugin_peers",
	"Other hosts, by state: answering (a probe, once), unanswered (none, so that nothing would follow from their silence), silent (away, and no probe is answered: services send their providers no new connections from here).",
	[]string{"state"}, nil)

// Describe implements prometheus.Collector.
func (p peers) Describe(ch chan<- *prometheus.Desc) { ch <- peersDesc }

// Collect implements prometheus.Collector.
func (p peers) Collect(ch chan<- prometheus.Metric) {
	answering, unanswered, silent := p.of.States()
	for state, n := range map[string]int{"answering": answering, "unanswered": unanswered, "silent": silent} {
		ch <- prometheus.MustNewConstMetric(peersDesc, prometheus.GaugeValue, float64(n), state)
	}
}

func (a *Agent) peerMetrics() []prometheus.Collector {
	if a.prober == nil {
		return nil
	}
	return []prometheus.Collector{peers{a.prober}}
}
