package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

// What counts as full, and as fallen silent.
const (
	nearlyFull    = 0.8
	statusTimeout = 3 * time.Minute // of an agent that is alive and should speak every minute
	clockSkew     = 10 * time.Second
	fewPools      = 10
)

// status tells what an operator looks at first.
func (s *diagnosis) status(_ http.ResponseWriter, r *request) (any, error) {
	return s.clusterStatus(r.Context(), r.actor)
}

var findingsDesc = prometheus.NewDesc("contiv_cluster_findings",
	"Objects that have a condition, as netctl status reports them; 0 while all is well.", []string{"object", "condition", "severity"}, nil)

// findings are the counts of what the status says, as metrics: where it says that not all
// is well, an alert can.
type findings struct{ s *diagnosis }

// Describe implements prometheus.Collector.
func (findings) Describe(ch chan<- *prometheus.Desc) { ch <- findingsDesc }

// Collect implements prometheus.Collector. While the status cannot be had, that is what is
// wrong.
func (f findings) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), f.s.timeout)
	defer cancel()
	type series struct{ object, name, severity string }
	counts := map[series]int{}
	for _, c := range condition.All() { // an alert resolves when the series is 0, and not only when it is gone
		counts[series{string(c.Object()), c.Name(), c.Severity()}] = 0
	}
	o, err := f.s.clusterStatus(ctx, control.Admin())
	if err != nil {
		counts[series{string(condition.MasterStore.Object()), condition.MasterStore.Name(), condition.MasterStore.Severity()}] = 1
	}
	for _, x := range o.Findings {
		counts[series{x.Object, x.Name, x.Severity}]++
	}
	for of, n := range counts {
		ch <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(n), of.object, of.name, of.severity)
	}
}

func (s *diagnosis) clusterStatus(ctx context.Context, a control.Actor) (o api.ClusterStatus, err error) {
	if a.Scope().Limited() {
		return s.tenantStatus(ctx, a)
	}
	f, err := s.gather(ctx, a)
	if err != nil {
		return o, err
	}
	o = api.ClusterStatus{Version: s.version.Version, Revision: int64(f.view.Revision()), Masters: f.masters, Stores: f.stores, Hosts: f.hosts, Pools: f.pools}
	for _, h := range f.hosts {
		o.Endpoints += h.Endpoints
	}
	found := f.judgeCluster()
	found = append(found, f.judgeCertificates(s.ownName(), s.machine().Certificates)...)
	found = append(found, s.judgeHealth(f)...)
	found = append(found, s.judgeView(f.view, f.known)...)
	addFindings(&o, found)
	return o, nil
}

// gather collects the facts that status and doctor judge alike: what a netmaster knows
// without asking hosts and other netmasters.
func (s *diagnosis) gather(ctx context.Context, a control.Actor) (f facts, err error) {
	// The servers are asked first, within 2 s: reading what is in a store that is
	// away fails too, but later than people wait.
	f.stores = s.cluster.Stores(ctx)
	if len(f.stores) > 0 && !slices.ContainsFunc(f.stores, func(x api.StoreServer) bool { return x.Error == "" }) {
		return f, model.Errorf(model.ErrUnavailable, "no server of the store answers: %s: %s; hosts keep their desired state, and nothing can be changed", f.stores[0].Address, f.stores[0].Error)
	}
	if f.known, err = s.control.Hosts.List(ctx, a); err != nil {
		return f, err
	}
	if f.view, err = s.control.View(ctx); err != nil {
		return f, err
	}
	if f.masters, err = s.cluster.Masters(ctx); err != nil {
		return f, err
	}
	servers, warnings := s.members.storeMembers(ctx)
	if len(servers) > 0 {
		f.stores = servers
	}
	f.warnings, f.now, f.heard, f.fabric = warnings, time.Now(), s.lastStatusTimes(), f.view.Settings.AciFabric()
	f.health, f.machines = s.cluster.Health(ctx), map[string]api.Machine{cmp.Or(s.address, "here"): s.machine()}
	f.hosts = []api.Host{}
	for _, h := range f.known {
		f.hosts = append(f.hosts, s.hosts.hostToAPI(h, f.now))
	}
	vlans, vnis := f.view.Addresses.TagPools()
	f.pools = append(f.pools, poolToAPI("vlans", vlans), poolToAPI("vnis", vnis))
	for _, p := range f.view.Addresses.AddressPools() {
		if p.Share() < nearlyFull || len(f.pools) == fewPools {
			break
		}
		f.pools = append(f.pools, poolToAPI("addresses of "+p.Network.String(), p.Pool))
	}
	f.broken, err = s.control.BrokenAssertions(ctx, control.Admin())
	return f, err
}

// judgeView says what is wrong with what the store has.
func (s *diagnosis) judgeView(v *control.View, hosts []control.HostState) (out []api.Finding) {
	for _, w := range v.Pending.Waiting() {
		out = append(out, condition.ChangeWaits.Finding("cluster", waitingText(w)))
	}
	out = slices.Concat(out, servicesOverlapped(v), servicesLost(v))
	if text := manyAway(v, hosts); text != "" {
		out = append(out, condition.HostsAway.Finding("cluster", text))
	}
	if text := s.control.Store.Mismatch(); text != "" {
		out = append(out, condition.MasterSameStore.Finding("cluster", text))
	}
	return out
}

// addFindings enters what was found to a status.
func addFindings(o *api.ClusterStatus, found []api.Finding) {
	sortFindings(found)
	o.Findings, o.Wrong, o.Notices = append([]api.Finding{}, found...), []string{}, []string{}
	for _, f := range found {
		if f.Severity == api.SeverityError {
			o.Wrong = append(o.Wrong, f.String())
		} else {
			o.Notices = append(o.Notices, f.String())
		}
	}
	o.Well = len(o.Wrong) == 0
}

func poolToAPI(name string, p control.Pool) api.Pool {
	return api.Pool{Name: name, Used: p.Used, Size: p.Size}
}

// mixedFormats names the hosts whose agents may misread others; "" = there are none.
func mixedFormats(hosts []api.Host) string {
	newest := 0
	for _, h := range hosts {
		newest = max(newest, h.Format)
	}
	var behind []string
	for _, h := range hosts {
		if h.Format > 0 && h.Format < newest {
			behind = append(behind, fmt.Sprintf("%s %d", h.Name, h.Format))
		}
	}
	if len(behind) == 0 {
		return ""
	}
	return fmt.Sprintf("hosts are of different formats (%s, others %d): between them traffic may be lost", strings.Join(behind, ", "), newest)
}

// tunnelPorts names the hosts whose tunnels have another UDP port than those of
// most; "" = there are none.
func tunnelPorts(hosts []api.Host) string {
	count, most := map[int]int{}, 0
	for _, h := range hosts {
		if p := h.VXLANPort; p != 0 {
			count[p]++
			if c := count[p]; most == 0 || c > count[most] || c == count[most] && p < most {
				most = p
			}
		}
	}
	var odd []string
	for _, h := range hosts {
		if h.VXLANPort != 0 && h.VXLANPort != most {
			odd = append(odd, fmt.Sprintf("%s %d", h.Name, h.VXLANPort))
		}
	}
	if odd == nil {
		return ""
	}
	return fmt.Sprintf("hosts have different UDP ports for VXLAN (%s, others %d): between them nothing passes on VXLAN networks", strings.Join(odd, ", "), most)
}

// ageText writes seconds as people read them.
func ageText(seconds int64) string {
	return (time.Duration(seconds) * time.Second).String()
}
