package observe

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/security/strictjson"
)

// Handler serves inspection (1.x: port 9090), health and metrics, and more by
// http.ServeMux's patterns. A TLS client without a certificate gets liveness and readiness,
// with a viewer's token also the metrics, and nothing else.
func (a *Observer) Handler(more map[string]http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range more {
		mux.HandleFunc(pattern, h)
	}
	mux.HandleFunc("GET /svcstats", a.getStats)
	mux.HandleFunc("GET /inspect/driver", a.getDriver)
	mux.HandleFunc("POST /debug/reclaimEndpoint/{id}", a.reclaim)
	mux.HandleFunc("GET /debug/state", a.getState)
	mux.HandleFunc("GET /debug/log", a.getLog)
	mux.HandleFunc("GET /monitor", a.getMonitor)
	mux.HandleFunc("GET /healthz", a.getHealth)
	mux.HandleFunc("GET /readyz", a.getHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics, promhttp.HandlerOpts{}))
	if a.cfg.DebugHooks {
		mux.HandleFunc("POST /debug/mirror/pause", func(w http.ResponseWriter, _ *http.Request) {
			a.cfg.Cluster.Pause()
			writeJSON(w, map[string]bool{"paused": true})
		})
		mux.HandleFunc("POST /debug/mirror/resume", func(w http.ResponseWriter, _ *http.Request) {
			a.cfg.Cluster.Resume()
			writeJSON(w, map[string]bool{"paused": false})
		})
	}
	mux.HandleFunc("GET /livez", a.getLive)
	return knownQueries(mux, requireCertificate(mux, newScrapers(a.cfg.Netmasters.MayView), func(ctx context.Context, path string) bool {
		h := a.Health(ctx)
		return h.Ready && (path != "/healthz" || h.IsHealthy())
	}))
}

// queries are the query parameters of routes that have some; others are refused.
var queries = map[string][]string{"GET /monitor": {"drops", "from", "to"}, "GET /healthz": {"format"}, "GET /readyz": {"format"}}

// knownQueries refuses query parameters that would have no effect on a route of mux.
func knownQueries(mux *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		if err := strictjson.CheckQuery(r.URL.RawQuery, queries[pattern]...); err != nil {
			failHTTP(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func failHTTP(w http.ResponseWriter, err error) {
	_, status := attach.NewFailure(err)
	http.Error(w, err.Error(), status)
}

// getStats answers the counters: of ports by endpoint, of rules by id, of drops
// by reason, of services by client, in 1.x's shape.
func (a *Observer) getStats(w http.ResponseWriter, r *http.Request) {
	s, err := a.cfg.Driver.Stats(r.Context())
	if err != nil {
		failHTTP(w, err)
		return
	}
	if n, err := a.cfg.Egress.Refused(); err == nil && n > 0 {
		s.Drops = maps.Clone(orEmpty(s.Drops))
		s.Drops[dropControlPlane] = n
	}
	writeJSON(w, map[string]any{
		"services": serviceClients(a.cfg, s), "ports": orEmpty(s.Ports), "rules": orEmpty(s.Rules), "drops": orEmpty(s.Drops),
		"tables": tablesOf(a.cfg.Can), "uncounted": uncounted(s),
	})
}

// uncounted says what is not counted under "services", and why: by service, or
// "connections", the established ones of all.
func uncounted(s driver.Stats) map[string]string {
	out := map[string]string{}
	for k, why := range s.Uncounted {
		out[desired.WholeKey(k).String()] = why
	}
	if s.ConnectionsUnknown != "" {
		out["connections"] = s.ConnectionsUnknown
	}
	return out
}

// dropControlPlane is why the host's stack, and no data plane, refuses a packet.
const dropControlPlane = "control-plane"

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

func (a *Observer) getDriver(w http.ResponseWriter, r *http.Request) {
	text, err := a.cfg.Driver.Inspect(r.Context())
	if err != nil {
		failHTTP(w, err)
		return
	}
	writeJSON(w, map[string]any{
		"tables": tablesOf(a.cfg.Can), "capabilities": a.cfg.Can,
		"driver": a.cfg.DriverName, "why": a.cfg.DriverWhy, "host": a.cfg.Host, "vtep": a.cfg.VTEP,
		"state": strings.Split(strings.TrimRight(text, "\n"), "\n"),
	})
}

// reclaim releases the attachment under an endpoint's id, as DEL would: for people
// whose runtime has forgotten a container.
func (a *Observer) reclaim(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	for _, e := range a.cfg.Attachments.Entries() {
		if string(e.Endpoint.ID) != id && e.Endpoint.String() != id && e.Request.Container != id {
			continue
		}
		if err := a.cfg.Attachments.Detach(r.Context(), attach.DetachRequest{Key: e.Key()}); err != nil {
			failHTTP(w, err)
			return
		}
		writeJSON(w, map[string]string{"reclaimed": e.Endpoint.String()})
		return
	}
	failHTTP(w, model.Errorf(model.ErrNotFound, "reclaim endpoint %q: no attachment on this host has that endpoint or container id", id))
}

// State is what /debug/state answers.
type State struct {
	Host        model.HostName             `json:"host"`
	Netmasters  string                     `json:"netmasters"`
	Stale       string                     `json:"stale,omitempty"` // why the store is not followed
	Paused      bool                       `json:"paused,omitempty"`
	Revision    int64                      `json:"revision"` // newest that the mirrors have delivered
	Applied     int64                      `json:"applied"`  // what the data plane stands for
	Tenants     map[model.TenantName]int64 `json:"tenants"`  // of which something is mirrored, with its newest revision
	Followed    map[string]int64           `json:"followed"` // what is mirrored of the store, with revisions
	Networks    map[string]model.RouterID  `json:"networks"` // of the desired state, with the router that joins each; 0 = none does
	Ports       map[string]PortState       `json:"ports"`
	Pending     []string                   `json:"pending"` // ports wanted but not programmed
	Attachments map[string]int             `json:"attachments"`
	Problems    map[string]string          `json:"problems"`
	Error       string                     `json:"error,omitempty"`
	LastPass    time.Time                  `json:"lastPass"`
	LastTook    string                     `json:"lastTook"`
	Passes      uint64                     `json:"passes"`
}

// PortState is a port of the last report.
type PortState struct {
	Programmed bool                 `json:"programmed"`
	Error      string               `json:"error,omitempty"`
	Private    netip.Addr           `json:"private,omitzero"`  // by which the host's stack knows it
	Private6   netip.Addr           `json:"private6,omitzero"` // the same for IPv6
	Published  []attach.PortBinding `json:"published,omitempty"`
}

// State draws up what the agent knows of itself.
func (a *Observer) State() State {
	o, _ := a.cfg.Reached.Get()
	bases, _ := a.cfg.Netmasters.Known()
	s := State{
		Host: a.cfg.Host, Netmasters: bases, Applied: o.Report.Revision,
		Tenants: map[model.TenantName]int64{}, Followed: map[string]int64{}, Networks: map[string]model.RouterID{}, Ports: map[string]PortState{}, Pending: []string{},
		Attachments: map[string]int{}, Problems: a.judge.problemTexts(o), LastPass: o.At, LastTook: o.Took.String(),
	}
	if err := a.cfg.Cluster.NotFollowing(); err != nil {
		s.Stale = err.Error()
	}
	if o.Err != nil {
		s.Error = o.Err.Error()
	}
	p := a.cfg.Cluster.Lookup.Progress()
	s.Revision, s.Paused = int64(p.Revision), p.Paused
	if s.Applied >= int64(p.Dirty) { // nothing since then concerns this host
		s.Applied = s.Revision
	}
	for t, rev := range p.Tenants {
		s.Tenants[t] = int64(rev)
	}
	for part, rev := range p.Parts {
		s.Followed[part] = int64(rev)
	}
	for _, n := range o.Networks.All() {
		if n.Group == "" { // segments are in their network
			s.Networks[n.Key.String()] = n.Joined
		}
	}
	s.Passes, _, _ = a.cfg.Reached.Totals()
	for name, st := range o.Report.Ports.All() {
		p := PortState{Programmed: true}
		if st.Err != nil {
			p = PortState{Error: st.Err.Error()}
			s.Pending = append(s.Pending, name)
		}
		s.Ports[name] = p
	}
	slices.Sort(s.Pending)
	for _, e := range a.cfg.Attachments.Entries() {
		s.Attachments[e.State]++
		if p, ok := s.Ports[e.HostIf]; ok && e.State == attachment.StateDone {
			p.Private, p.Published = e.Private, e.Ports
			if e.Result != nil && slices.ContainsFunc(e.Result.Addresses, func(x attach.Address) bool { return x.Prefix.Addr().Is6() }) {
				p.Private6 = a.cfg.Egress.Addresses.Subnet().Private6(e.Private)
			}
			s.Ports[e.HostIf] = p
		}
	}
	return s
}

func (a *Observer) getState(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, a.State())
}

func countPorts(cfg Config) (programmed, pending int) {
	o, _ := cfg.Reached.Get()
	return o.CountPorts()
}

func (a *Observer) registerMetrics() error {
	a.metrics = prometheus.NewRegistry()
	a.applyTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "contiv_netplugin_apply_seconds", Help: "Time that the driver takes to apply the desired state.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
	})
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "contiv_netplugin_" + name, Help: help}, f)
	}
	var errs []error
	for _, c := range slices.Concat(a.cfg.Attachments.Metrics(), a.cfg.Metrics, a.flowLog.collectors(), []prometheus.Collector{
		tableMetrics{a.cfg.Can},
		a.applyTime,
		gauge("ports", "Local ports that are programmed.", func() float64 { n, _ := countPorts(a.cfg); return float64(n) }),
		gauge("ports_pending", "Local ports that are wanted but not programmed.", func() float64 { _, n := countPorts(a.cfg); return float64(n) }),
		newHostMetrics(a.judge, a.cfg.Driver, a.cfg.Cluster),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netplugin_build_info", Help: "1, with version, driver and host as labels.",
			ConstLabels: prometheus.Labels{"version": a.cfg.Version, "driver": a.cfg.DriverName, "host": string(a.cfg.Host)},
		}, func() float64 { return 1 }),
		gauge("revision", "Store revision of the last desired state applied.", func() float64 {
			o, _ := a.cfg.Reached.Get()
			return float64(o.Report.Revision)
		}),
		gauge("stale", "1 while the host cannot watch the store, else 0.", func() float64 {
			if a.cfg.Cluster.NotFollowing() != nil {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netplugin_control_plane_refused_total", Help: "Packets of containers to the control plane that were refused.",
		}, func() float64 {
			n, _ := a.cfg.Egress.Refused() // a kernel that does not tell counts nothing
			return float64(n)
		}),
		gauge("attachments", "Attachments in the journal.", func() float64 { return float64(len(a.cfg.Attachments.Entries())) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}) {
		errs = append(errs, a.metrics.Register(c))
	}
	return errors.Join(errs...)
}

func writeJSON(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n')) // who does not listen any more needs no answer
}
