package apiserver

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
)

// maxNetworkSeries is how many networks, the fullest, have series of their own.
const maxNetworkSeries = 100

// scrapeTimeout bounds what a scrape waits for the store.
const scrapeTimeout = 3 * time.Second

// metric makes the description of a metric of the cluster.
func metric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("contiv_"+name, help, labels, nil)
}

var (
	hostsKnown    = metric("hosts_known", "Known hosts.")
	hostsAlive    = metric("hosts_alive", "Hosts that are alive, as in netctl host ls.")
	hostAlive     = metric("host_alive", "1 while a host is alive, as in netctl host ls, else 0.", "host")
	hostReady     = metric("host_ready", "1 while a host reports that it is ready, else 0.", "host")
	hostAway      = metric("host_away_seconds", "Time without a heartbeat of a host that is away, as --evict-after counts it, in steps of up to a minute.", "host")
	manyHostsAway = metric("hosts_many_away", "1 while more than half of the hosts are away, so that no host is evicted, else 0.")
	hostEvict     = metric("host_evict_after_seconds", "Time that a host may be away before its endpoints are released; 0 = forever.")
	brokenCount   = metric("assertions_broken", "Assertions that do not hold, or cannot be checked.")
	pendingCount  = metric("changes_pending", "Changes that are unconfirmed.")
	hostProblems  = metric("host_problems", "Problems that a host reports, by kind.", "host", "kind")
	tagsUsed      = metric("tags_used", "VLAN ids (pool vlans) and VNIs (pool vnis) in use.", "pool")
	tagsSize      = metric("tags_size", "VLAN ids and VNIs in the range, by pool.", "pool")
	addressesUsed = metric("network_addresses_used", "IPv4 addresses in use, of the hundred fullest networks.", "network")
	addressesSize = metric("network_addresses_size", "IPv4 addresses of the network, of the hundred fullest networks.", "network")
	overQuota     = metric("address_quota_refused_total", "Addresses that this netmaster refused to hosts that have reserved their share of a network.")
	objectCount   = metric("objects", "Objects of the cluster, by kind: tenants, networks, groups, policies, rules, endpoints.", "kind")
	storeUp       = metric("store_up", "1 while a server of the store answers, else 0.", "server")
	storeAnswer   = metric("store_answer_seconds", "Time that a server of the store took to answer the last scrape.", "server")
	storeSize     = metric("store_size_bytes", "Size of a store server's database.", "server")
	storeQuota    = metric("store_quota_bytes", "Maximum size of the database, if the server reports it.", "server")
)

// clusterMetrics tell of the cluster; every replica tells the same.
type clusterMetrics struct {
	control *control.Controller
	watch   *liveness.Watch // nil = hosts are not told of
	cluster Cluster
	evict   time.Duration // Config.EvictAfter
}

// Describe implements prometheus.Collector.
func (m clusterMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		hostsKnown, hostsAlive, hostAlive, hostReady, hostAway, manyHostsAway, hostEvict, brokenCount, pendingCount, hostProblems, tagsUsed, tagsSize, addressesUsed, addressesSize, overQuota, objectCount,
		storeUp, storeAnswer, storeSize, storeQuota,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m clusterMetrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	ch <- prometheus.MustNewConstMetric(overQuota, prometheus.CounterValue, float64(m.control.Addresses.OverQuota()))
	v := m.control.Current()
	if m.watch != nil {
		m.collectHosts(v, gauge)
	}
	if _, known := v.Settings.Global(); known { // else nothing has been read yet
		gauge(pendingCount, float64(len(v.Pending.Waiting())))
		vlans, vnis := v.Addresses.TagPools()
		for name, p := range map[string]control.Pool{"vlans": vlans, "vnis": vnis} {
			gauge(tagsUsed, float64(p.Used), name)
			gauge(tagsSize, float64(p.Size), name)
		}
		for i, p := range v.Addresses.AddressPools() {
			if i == maxNetworkSeries {
				break
			}
			gauge(addressesUsed, float64(p.Used), p.Network.String())
			gauge(addressesSize, float64(p.Size), p.Network.String())
		}
		for kind, n := range map[string]int{
			"tenants": len(v.Tenants.List()), "networks": len(v.Networks.List("")), "groups": len(v.Groups.List("")), "policies": len(v.Policies.ListContiv("")),
			"rules": len(v.Policies.Rules("")), "endpoints": v.Endpoints.Count(),
		} {
			gauge(objectCount, float64(n), kind)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if broken, err := m.control.BrokenAssertions(ctx, control.Admin()); err == nil {
		gauge(brokenCount, float64(len(broken)))
	}
	for _, s := range m.cluster.Stores(ctx) {
		up := 1.0
		if s.Error != "" {
			up = 0
		} else {
			gauge(storeAnswer, s.Took, s.Address)
			gauge(storeSize, float64(s.Size), s.Address)
			if s.Quota > 0 {
				gauge(storeQuota, float64(s.Quota), s.Address)
			}
		}
		gauge(storeUp, up, s.Address)
	}
}

func (m clusterMetrics) collectHosts(v *control.View, gauge func(*prometheus.Desc, float64, ...string)) {
	alive, statuses := m.watch.Seen()
	hosts, n := v.Hosts.List(), 0
	truth := map[bool]float64{true: 1}
	for _, h := range hosts {
		st, name := statuses[h.Name], string(h.Name)
		if alive[h.Name] {
			n++
		}
		gauge(hostAlive, truth[alive[h.Name]], name)
		gauge(hostReady, truth[alive[h.Name] && st.Ready], name)
		if a, away := v.Hosts.AwayTime(h.Name); away {
			gauge(hostAway, float64(a.Seconds), name)
		}
		for kind, count := range st.Kinds {
			gauge(hostProblems, float64(count), name, kind)
		}
	}
	gauge(manyHostsAway, truth[v.Hosts.TooManyAway(alive)])
	gauge(hostEvict, m.evict.Seconds())
	gauge(hostsKnown, float64(len(hosts)))
	gauge(hostsAlive, float64(n))
}
