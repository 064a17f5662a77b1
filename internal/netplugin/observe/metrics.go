package observe

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// Bounds of the number of label values, so that no cluster makes a scrape endless: the rest
// is summed under "other".
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
		"Packets that a rule decided; the hundred busiest rules have series of their own, all others are other.", []string{"rule"}, nil)
	ruleBytesDesc = prometheus.NewDesc("contiv_netplugin_rule_bytes_total",
		"Bytes of packets that a rule decided; the hundred busiest rules have series of their own, all others are other.", []string{"rule"}, nil)
	groupPacketsDesc = prometheus.NewDesc("contiv_netplugin_traffic_packets_total",
		"Packets of this host's containers, by network (tenant:network), group and direction as containers see it; pairs beyond two hundred are other.", []string{"network", "group", "direction"}, nil)
	groupBytesDesc = prometheus.NewDesc("contiv_netplugin_traffic_bytes_total",
		"Bytes of this host's containers, by network (tenant:network), group and direction as containers see it; pairs beyond two hundred are other.", []string{"network", "group", "direction"}, nil)
	problemsDesc = prometheus.NewDesc("contiv_netplugin_problems",
		"Objects that are not as wanted, by kind; kind no effect counts settings that this host ignores.", []string{"kind"}, nil)
	conditionDesc = prometheus.NewDesc("contiv_netplugin_condition",
		"1 while all is well, 0 while the host reports the condition; without the condition netmaster, since a scrape asks no other machine.", []string{"condition", "severity"}, nil)
	lostDesc = prometheus.NewDesc("contiv_netplugin_attachments_without_endpoint",
		"Attachments without an endpoint in the store.", nil, nil)
)

// hostMetrics collects what the host tells of its health and its traffic.
type hostMetrics struct {
	judge   judge
	driver  driver.Driver
	cluster *statemirror.State

	mu    sync.Mutex
	stats driver.Stats // as last read
	at    time.Time    // when; zero = never
	took  time.Duration
	drops map[string]uint64 // sums, by reason
	sums  map[trafficOf]*driver.PortStats
	rules map[string]*driver.RuleStats // of rules that have a series of their own
	rest  *driver.RuleStats            // of the others; nil while there are none

	services serviceSums
}

// trafficOf is whose traffic is summed: a group of a network, as labels name them.
type trafficOf struct{ network, group string }

func newHostMetrics(j judge, d driver.Driver, c *statemirror.State) *hostMetrics {
	m := &hostMetrics{judge: j, driver: d, cluster: c, drops: map[string]uint64{}, sums: map[trafficOf]*driver.PortStats{}, rules: map[string]*driver.RuleStats{}, services: serviceSums{}}
	for _, reason := range driver.DropReasons { // a rate misses the value with which a series begins
		m.drops[reason] = 0
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *hostMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range slices.Concat([]*prometheus.Desc{
		dropsDesc, rulePacketsDesc, ruleBytesDesc, groupPacketsDesc, groupBytesDesc, problemsDesc, conditionDesc, lostDesc,
	}, serviceDescs, unconfirmedDescs) {
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
	seen := m.judge.observe()
	gauge(lostDesc, float64(len(seen.lost)))
	kinds := map[string]int{}
	for object, text := range seen.problems {
		if strings.HasPrefix(text, model.NoEffectPrefix) {
			kinds[noEffectKind]++
		} else {
			kinds[problemKind(object)]++
		}
	}
	for _, k := range append(slices.Clone(problemKinds), noEffectKind, otherSeries) {
		gauge(problemsDesc, float64(kinds[k]), k)
	}
	for _, c := range checks {
		if c.Condition == condition.HostNetmaster {
			continue // to ask is not a scrape's business
		}
		holds := 1.0
		if c.holds(ctx, m.judge.cfg, seen) != nil {
			holds = 0
		}
		gauge(conditionDesc, holds, c.Name(), c.Severity())
	}
	m.collectUnconfirmed(gauge, count)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read(ctx) != nil {
		return // the condition data-plane tells
	}
	for reason, n := range m.drops {
		count(dropsDesc, n, reason)
	}
	tell := func(name string, r *driver.RuleStats) {
		count(rulePacketsDesc, r.Packets, name)
		count(ruleBytesDesc, r.Bytes, name)
	}
	for name, r := range m.rules {
		tell(name, r)
	}
	if m.rest != nil {
		tell(otherSeries, m.rest)
	}
	m.services.collect(m.stats.ConnectionsUnknown == "", gauge, count)
	for g, p := range m.sums {
		count(groupPacketsDesc, p.TxPackets, g.network, g.group, "out")
		count(groupBytesDesc, p.TxBytes, g.network, g.group, "out")
		count(groupPacketsDesc, p.RxPackets, g.network, g.group, "in")
		count(groupBytesDesc, p.RxBytes, g.network, g.group, "in")
	}
}

// readShare bounds what reading the data plane's counters costs, which grows with
// the rules: a twentieth of the time, however often and by how many is scraped.
const readShare = 20

// read brings the sums up to date, unless they were a moment ago.
func (m *hostMetrics) read(ctx context.Context) error {
	begin := time.Now()
	if !m.at.IsZero() && begin.Sub(m.at) < readShare*m.took {
		return nil
	}
	s, err := m.driver.Stats(ctx)
	if err != nil {
		return err
	}
	if m.at.IsZero() { // what the data plane had counted before the first scrape is no growth
		m.stats = s
	}
	m.add(s)
	m.at, m.took = time.Now(), time.Since(begin)
	return nil
}

// add adds what has been counted since the last time to the sums, so that they do
// not fall; a data plane's counters do, where it takes away what counted.
func (m *hostMetrics) add(s driver.Stats) {
	for reason, n := range s.Drops {
		m.drops[reason] += grown(n, m.stats.Drops[reason])
	}
	m.addRules(s.Rules)
	m.addPorts(s.Ports)
	m.services.add(s.Services, m.stats.Services)
	m.stats = s
}

// grown is how much a counter has grown; how much is not known of one that has
// fallen, and counts as nothing.
func grown(now, before uint64) uint64 { return max(now, before) - before }

// addRules gives series to the first hundred rules, the busiest first, which keep
// them as long as the data plane knows the rule; the others share one.
func (m *hostMetrics) addRules(all map[string]driver.RuleStats) {
	maps.DeleteFunc(m.rules, func(name string, _ *driver.RuleStats) bool { _, still := all[name]; return !still })
	var others []string
	for name := range all {
		if m.rules[name] == nil {
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Packets, all[a].Packets), cmp.Compare(a, b))
	})
	n := min(len(others), maxRuleSeries-len(m.rules))
	for _, name := range others[:n] {
		m.rules[name] = &driver.RuleStats{}
	}
	if len(others) > n && m.rest == nil {
		m.rest = &driver.RuleStats{}
	}
	for name, now := range all {
		s, before := m.rules[name], m.stats.Rules[name]
		if s == nil {
			s = m.rest
		}
		s.Packets += grown(now.Packets, before.Packets)
		s.Bytes += grown(now.Bytes, before.Bytes)
	}
}

// addPorts adds what ports have counted to their groups.
func (m *hostMetrics) addPorts(ports map[string]driver.PortStats) {
	names := slices.Collect(maps.Keys(ports))
	keys := make([]model.EndpointKey, len(names))
	for i, name := range names {
		keys[i] = ports[name].Endpoint
	}
	groups := m.cluster.Endpoints.Groups(keys)
	for i, name := range names {
		now := ports[name]
		before := m.stats.Ports[name]
		if before.Endpoint != now.Endpoint || now.RxPackets < before.RxPackets || now.TxPackets < before.TxPackets ||
			now.RxBytes < before.RxBytes || now.TxBytes < before.TxBytes {
			before = driver.PortStats{} // another port of that name
		}
		g := trafficOf{network: now.Endpoint.Network.String(), group: string(groups[i])}
		if now.Endpoint == (model.EndpointKey{}) {
			g.network = otherSeries
		}
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
}
