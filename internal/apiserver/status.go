package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/control"
	"github.com/contiv/netplugin/v2/internal/model"
)

// What counts as full, and as fallen silent.
const (
	nearlyFull = 0.8
	silence    = 3 * time.Minute // of an agent that is alive and should speak every minute
	clockSkew  = 10 * time.Second
	fewPools   = 10
)

// status tells what an operator looks at first.
func (s *server) status(_ http.ResponseWriter, r *http.Request) (any, error) {
	return s.clusterStatus(r.Context())
}

var findingsDesc = prometheus.NewDesc("contiv_cluster_findings",
	"What netctl status says of the cluster: faults (severity wrong) and notices.", []string{"severity"}, nil)

// findings are the counts of what the status says, as metrics: where it says that not all
// is well, an alert can.
type findings struct{ s *server }

// Describe implements prometheus.Collector.
func (findings) Describe(ch chan<- *prometheus.Desc) { ch <- findingsDesc }

// Collect implements prometheus.Collector. While the status cannot be had, that is what is
// wrong.
func (f findings) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), f.s.timeout)
	defer cancel()
	wrong, notices := 1, 0
	if o, err := f.s.clusterStatus(ctx); err == nil {
		wrong, notices = len(o.Wrong), len(o.Notices)
	}
	ch <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(wrong), "wrong")
	ch <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(notices), "notice")
}

func (s *server) clusterStatus(ctx context.Context) (o api.ClusterStatus, err error) {
	if scope := control.ScopeOf(ctx); scope.Limited() {
		return s.tenantStatus(ctx, scope)
	}
	// The servers are asked first, within 2 s: reading what is in a store that is
	// away fails too, but later than people wait.
	stores := s.cluster.Stores(ctx)
	if len(stores) > 0 && !slices.ContainsFunc(stores, func(x api.StoreServer) bool { return x.Error == "" }) {
		return o, model.Errorf(model.ErrUnavailable, "no server of the store answers: %s: %s; hosts keep what they have, and nothing can be changed", stores[0].Address, stores[0].Error)
	}
	hosts, err := s.control.Hosts(ctx)
	if err != nil {
		return o, err
	}
	v, err := s.control.View(ctx)
	if err != nil {
		return o, err
	}
	o = api.ClusterStatus{Version: s.version.Version, Revision: int64(v.Revision()), Hosts: []api.Host{}, Pools: []api.Pool{}}
	if o.Masters, err = s.cluster.Masters(ctx); err != nil {
		return o, err
	}
	o.Stores = stores
	servers, warnings := s.storeMembers(ctx)
	if len(servers) > 0 {
		o.Stores = servers
	}
	now := time.Now()
	for _, h := range hosts {
		o.Hosts = append(o.Hosts, s.hostToAPI(h, now))
		o.Endpoints += h.Endpoints
	}
	vlans, vnis := v.TagPools()
	o.Pools = append(o.Pools, poolToAPI("vlans", vlans), poolToAPI("vnis", vnis))
	for _, p := range v.AddressPools() {
		if p.Share() < nearlyFull || len(o.Pools) == fewPools {
			break
		}
		o.Pools = append(o.Pools, poolToAPI("addresses of "+p.Network.String(), p.Pool))
	}
	judge(&o, now)
	o.Notices = append(o.Notices, warnings...)
	s.judgeOwn(&o, now)
	s.judgeHealth(ctx, &o)
	for _, w := range v.Waiting() {
		o.Notices = append(o.Notices, waitingText(w))
	}
	for _, text := range servicesOverlapped(v) {
		o.Wrong, o.Well = append(o.Wrong, text), false
	}
	if text := manyAway(v, hosts); text != "" {
		o.Wrong, o.Well = append(o.Wrong, text), false
	}
	if text := s.control.StoreTrouble(); text != "" {
		o.Wrong, o.Well = append(o.Wrong, text), false
	}
	judgeFabric(&o, v)
	return o, nil
}

func poolToAPI(name string, p control.Pool) api.Pool {
	return api.Pool{Name: name, Used: p.Used, Size: p.Size}
}

// judge says what is wrong, and what is only worth a notice.
func judge(o *api.ClusterStatus, now time.Time) {
	o.Wrong, o.Notices = []string{}, []string{}
	wrong := func(format string, args ...any) { o.Wrong = append(o.Wrong, fmt.Sprintf(format, args...)) }
	notice := func(format string, args ...any) { o.Notices = append(o.Notices, fmt.Sprintf(format, args...)) }
	leads := false
	for _, m := range o.Masters {
		leads = leads || m.Role == roleLeader
	}
	if !leads {
		wrong("no netmaster leads: nothing is cleaned up, and nobody tells of hosts that go; wait %d s after the end of a leader, then look into the logs of netmaster", 15)
	}
	for _, x := range o.Stores {
		switch {
		case x.Error != "":
			wrong("store %s does not answer: %s", x.Address, x.Error)
		case len(x.Alarms) > 0:
			wrong("store %s: %v", x.Address, x.Alarms)
		case x.Quota > 0 && float64(x.Size) > nearlyFull*float64(x.Quota):
			wrong("store %s has taken %d of %d MiB: when they are used up nothing can be changed", x.Address, x.Size>>20, x.Quota>>20)
		}
	}
	for _, h := range o.Hosts {
		judgeHost(h, now, wrong, notice)
	}
	for _, text := range []string{formats(o.Hosts), tunnelPorts(o.Hosts)} {
		if text != "" {
			wrong("%s", text)
		}
	}
	for _, p := range o.Pools {
		if float64(p.Used) >= nearlyFull*float64(p.Size) && p.Size > 0 {
			notice("%s: %d of %d are taken", p.Name, p.Used, p.Size)
		}
	}
	o.Well = len(o.Wrong) == 0
}

func judgeHost(h api.Host, now time.Time, wrong, notice func(string, ...any)) {
	if h.State == api.HostAway {
		last := "it has never told its status"
		if h.Age >= 0 {
			last = "its last word was " + ageText(h.Age) + " ago"
		}
		wrong("host %s is away: %s, and %d endpoints are there%s; %s", h.Name, last, h.Endpoints, graceText(h), awayRemedy(h))
		return
	}
	switch said, err := time.Parse(time.RFC3339, h.LastWord); {
	case err != nil:
		notice("host %s is alive and has not told its status yet", h.Name)
	case time.Duration(h.Age)*time.Second > silence:
		wrong("host %s is alive, but its last word was %s ago: either its clock is behind, or its agent cannot write to the store", h.Name, ageText(h.Age))
	case said.Sub(now) > clockSkew:
		notice("the clock of host %s is %s ahead", h.Name, said.Sub(now).Round(time.Second))
	}
	if h.Draining {
		notice("host %s drains: services send its providers no new connections until 'netctl host undrain %s'", h.Name, h.Name)
	}
	if h.Error != "" {
		wrong("host %s: the data plane does not follow: %s", h.Name, h.Error)
	}
	for _, c := range h.Conditions {
		if c.Notice && !c.Degraded {
			notice("host %s: %s: %s", h.Name, c.Name, c.Message)
		} else if h.Error == "" || c.Name != "data-plane" {
			wrong("host %s: %s: %s", h.Name, c.Name, c.Message)
		}
	}
	// The status is some seconds old: a container that has just ended is still
	// counted there. Of one that runs without an endpoint the host says so itself.
	if h.Ready && h.Attachments > 0 && h.Endpoints < h.Attachments {
		notice("host %s had %d containers attached at its last word, and the cluster has %d endpoints there; while containers end this passes within seconds", h.Name, h.Attachments, h.Endpoints)
	}
	for _, name := range sortedKeys(h.Tables) {
		t := h.Tables[name]
		if t.Capacity > 0 && float64(t.Entries) >= nearlyFull*float64(t.Capacity) {
			notice("host %s: table %s has %d of %d entries", h.Name, name, t.Entries, t.Capacity)
		}
	}
}

// formats names the hosts whose agents may misread others; "" = there are none.
func formats(hosts []api.Host) string {
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
	return fmt.Sprintf("hosts are of different formats (%s, others %d): between them traffic may be lost; finish the upgrade of netplugin there", strings.Join(behind, ", "), newest)
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
	return fmt.Sprintf("hosts have different UDP ports for VXLAN (%s, others %d): between them nothing passes on VXLAN networks; start netplugin there with the same --vxlan-port", strings.Join(odd, ", "), most)
}

// ageText writes seconds as people read them.
func ageText(seconds int64) string {
	return (time.Duration(seconds) * time.Second).String()
}
