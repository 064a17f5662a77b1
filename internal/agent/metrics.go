package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/driver"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Bounds of what labels may name, so that no cluster makes a scrape endless:
// what is beyond them is told as "other".
const (
	maxRuleSeries  = 100
	maxGroupSeries = 200
	otherSeries    = "other"
)

// statsTimeout bounds the read of the data plane's counters for one scrape.
const statsTimeout = 5 * time.Second

var (
	dropsDesc = prometheus.NewDesc("contiv_netplugin_drops_total",
		"Packets that the data plane dropped, by reason.", []string{"reason"}, nil)
	rulePacketsDesc = prometheus.NewDesc("contiv_netplugin_rule_packets_total",
		"Packets that a rule decided; rules beyond the first hundred are other.", []string{"rule"}, nil)
	ruleBytesDesc = prometheus.NewDesc("contiv_netplugin_rule_bytes_total",
		"Bytes of packets that a rule decided; likewise.", []string{"rule"}, nil)
	groupPacketsDesc = prometheus.NewDesc("contiv_netplugin_traffic_packets_total",
		"Packets of this host's containers, by network and group; direction is the container's.", []string{"network", "group", "direction"}, nil)
	groupBytesDesc = prometheus.NewDesc("contiv_netplugin_traffic_bytes_total",
		"Bytes of this host's containers, likewise.", []string{"network", "group", "direction"}, nil)
	problemsDesc = prometheus.NewDesc("contiv_netplugin_problems",
		"Objects that are not as wanted, by kind.", []string{"kind"}, nil)
	conditionDesc = prometheus.NewDesc("contiv_netplugin_condition",
		"1 while a condition of the host's health holds, else 0; notice is true for those that leave the host ready.", []string{"condition", "notice"}, nil)
	lostDesc = prometheus.NewDesc("contiv_netplugin_attachments_without_endpoint",
		"Attachments that the cluster's store has no endpoint of.", nil, nil)
)

// hostMetrics collects what the host tells of its health and its traffic.
type hostMetrics struct {
	a *Agent

	mu    sync.Mutex
	ports map[string]driver.PortStats // at the last scrape, by interface
	sums  map[trafficOf]*driver.PortStats
	rules map[string]bool // that have a series of their own
}

// trafficOf is whose traffic is summed: a group of a network, as labels name them.
type trafficOf struct{ network, group string }

func newHostMetrics(a *Agent) *hostMetrics {
	return &hostMetrics{a: a, ports: map[string]driver.PortStats{}, sums: map[trafficOf]*driver.PortStats{}, rules: map[string]bool{}}
}

// Describe implements prometheus.Collector.
func (m *hostMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		dropsDesc, rulePacketsDesc, ruleBytesDesc, groupPacketsDesc, groupBytesDesc, problemsDesc, conditionDesc, lostDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *hostMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	seen := m.a.look()
	gauge(lostDesc, float64(len(seen.lost)))
	kinds := map[string]int{}
	for object := range seen.problems {
		kinds[problemKind(object)]++
	}
	for _, k := range append(slices.Clone(problemKinds), otherSeries) {
		gauge(problemsDesc, float64(kinds[k]), k)
	}
	for _, c := range conditions {
		if c.name == conditionNetmaster {
			continue // to ask is not a scrape's business
		}
		holds, notice := 1.0, "false"
		if c.check(ctx, m.a, seen) != nil {
			holds = 0
		}
		if c.notice {
			notice = "true"
		}
		gauge(conditionDesc, holds, c.name, notice)
	}
	s, err := m.a.cfg.Driver.Stats(ctx)
	if err != nil {
		return // the condition data-plane tells
	}
	for reason, n := range s.Drops {
		count(dropsDesc, n, reason)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.ruleSeries(s.Rules) {
		count(rulePacketsDesc, r.Packets, name)
		count(ruleBytesDesc, r.Bytes, name)
	}
	m.sum(s.Ports)
	for g, p := range m.sums {
		count(groupPacketsDesc, p.TxPackets, g.network, g.group, "out")
		count(groupBytesDesc, p.TxBytes, g.network, g.group, "out")
		count(groupPacketsDesc, p.RxPackets, g.network, g.group, "in")
		count(groupBytesDesc, p.RxBytes, g.network, g.group, "in")
	}
}

// ruleSeries returns the rules that have a series, the busiest first come and
// kept as long as they exist, and the sum of the others.
func (m *hostMetrics) ruleSeries(all map[string]driver.RuleStats) map[string]driver.RuleStats {
	for name := range m.rules {
		if _, still := all[name]; !still {
			delete(m.rules, name)
		}
	}
	var rest []string
	for name := range all {
		if !m.rules[name] {
			rest = append(rest, name)
		}
	}
	slices.SortFunc(rest, func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Packets, all[a].Packets), cmp.Compare(a, b))
	})
	for _, name := range rest[:min(len(rest), maxRuleSeries-len(m.rules))] {
		m.rules[name] = true
	}
	out := map[string]driver.RuleStats{}
	for name, r := range all {
		if !m.rules[name] {
			name = otherSeries
		}
		o := out[name]
		out[name] = driver.RuleStats{Packets: o.Packets + r.Packets, Bytes: o.Bytes + r.Bytes}
	}
	return out
}

// sum adds what ports have counted since the last scrape to their groups, so
// that a group's sum does not fall when a container goes.
func (m *hostMetrics) sum(ports map[string]driver.PortStats) {
	groups := m.a.cluster.trafficsOf(ports)
	for name, now := range ports {
		before := m.ports[name]
		if before.Endpoint != now.Endpoint || now.RxPackets < before.RxPackets || now.TxPackets < before.TxPackets ||
			now.RxBytes < before.RxBytes || now.TxBytes < before.TxBytes {
			before = driver.PortStats{} // another port of that name
		}
		g := groups[name]
		if m.sums[g] == nil && len(m.sums) >= maxGroupSeries {
			g = trafficOf{otherSeries, otherSeries}
		}
		s := m.sums[g]
		if s == nil {
			s = &driver.PortStats{}
			m.sums[g] = s
		}
		s.RxPackets += now.RxPackets - before.RxPackets
		s.RxBytes += now.RxBytes - before.RxBytes
		s.TxPackets += now.TxPackets - before.TxPackets
		s.TxBytes += now.TxBytes - before.TxBytes
	}
	m.ports = ports
}

// trafficsOf tells the network (tenant:network) and group of ports' endpoints.
func (c *cluster) trafficsOf(ports map[string]driver.PortStats) map[string]trafficOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]trafficOf, len(ports))
	for name, p := range ports {
		g := trafficOf{network: p.Endpoint.Network.String()}
		if p.Endpoint == (model.EndpointKey{}) {
			g.network = otherSeries
		}
		if m := c.mirrors[p.Endpoint.Network.Tenant]; m != nil {
			g.group = string(m.endpoints[p.Endpoint].Group)
		}
		out[name] = g
	}
	return out
}
