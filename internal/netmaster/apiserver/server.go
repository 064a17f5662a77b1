package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/liveness"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
)

// DefaultTimeout bounds the work for one request: long enough for an etcd that
// elects a new leader, short enough for a client that waits for a 503.
const DefaultTimeout = 8 * time.Second

// Config is what the server needs; all fields but Timeout, Watch, Registry and Stopping are required.
type Config struct {
	Control *control.Controller
	Cluster Cluster
	Version api.Version
	Mode    string // cluster mode, shown by the inspection of global
	Log     *slog.Logger
	Watch   *liveness.Watch // for metrics of hosts, and when they were heard of; nil = none
	// EvictAfter is for how long a host may be away until its endpoints are given up; 0 =
	// for ever.
	EvictAfter time.Duration
	Registry   *prometheus.Registry // of the metrics that /metrics shows; nil = a new one
	Timeout    time.Duration        // 0 = DefaultTimeout
	Address    string               // ip:port at which agents reach this server, to deliver events
	Stopping   <-chan struct{}      // closed when streams must end; nil = never
	// Hosts are names with a dot by which clients reach this server, beside those of
	// hosts that the cluster knows; addresses and names without a dot always pass.
	Hosts []string
	// LegacyErrors: answer refusals to clients that send no Accept header, as those
	// of 1.x, with status 500: they show the sentence of no other.
	LegacyErrors bool
	// Authenticate identifies the client of a request; the client sees the text of a
	// *refusal.Refusal. nil = every client may do all.
	Authenticate func(r *http.Request) (access.Identity, error)
	// Audit is the record of what was done and refused; nil = there is none.
	Audit Recorder
	// Tokens are the cluster's; nil = tokens give no access.
	Tokens Tokens
	// Support is what people who search for a fault get of this netmaster; nil = little.
	Support *supportbundle.Support
	// HostKeys tells which certificates hosts have got; nil = the cluster gives none.
	HostKeys HostKeys
	// Peer asks another netmaster, by its address, what it tells of itself (GET
	// /api/v1/doctor/netmaster); nil = none is asked.
	Peer func(ctx context.Context, address string) (api.Machine, error)
	// Pods tells of Kubernetes' pods; nil = netmaster follows no Kubernetes.
	Pods Pods
	// Manifests translates Kubernetes' manifests for plans; nil = netmaster follows no Kubernetes.
	Manifests Manifests
	// Members are of a store that netmasters are by themselves; nil = it is none.
	Members Members
}

// serverContext is what all parts of the server use: the use-cases and what Config says of this
// netmaster. It has no state.
type serverContext struct {
	address string
	cluster Cluster
	control *control.Controller
	log     *slog.Logger
	timeout time.Duration
	version api.Version
	mode    string // see Config.Mode
}

// server joins the parts of netmaster's HTTP interface, and registers their routes.
type server struct {
	*serverContext
	router    *router
	objects   *objectHandlers
	hosts     *hostHandlers
	endpoints *endpointHandlers
	services  *serviceHandlers
	streams   *streams
	store     *storeHandlers
	members   *memberHandlers
	tokens    *tokenHandlers
	diagnosis *diagnosis
	analysis  *analysisHandlers
}

// New returns netmaster's HTTP interface.
func New(cfg Config) (http.Handler, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, err
	}
	return s.guarded(), nil
}

// guarded is the server behind the checks that all requests pass.
func (s *server) guarded() http.Handler {
	return s.router.plainPaths(httpguard.CheckOrigin(httpguard.OriginConfig{
		IsOurs: s.router.isOurName, Remedy: "have netmaster started with --allowed-hosts %s",
		Refuse: func(w http.ResponseWriter, r *http.Request, sentence string) {
			s.router.refuse(w, r, model.Errorf(errForbidden, "%s", sentence))
		},
		IsStream: func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/plugin/monitor/") },
	}, s.router))
}

// join makes the parts of a server.
func join(cfg Config) *server {
	c := &serverContext{control: cfg.Control, cluster: cfg.Cluster, version: cfg.Version, log: cfg.Log, timeout: cfg.Timeout, address: cfg.Address, mode: cfg.Mode}
	rt := &router{
		serverContext: c, mux: http.NewServeMux(), allowed: cfg.Hosts, legacy: cfg.LegacyErrors, authenticate: cfg.Authenticate, audit: cfg.Audit,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "contiv_netmaster_http_requests_total", Help: "Requests answered, by route (none if unknown), method and code; without /metrics, /readyz, /openapi.json and requests refused for Host or Origin.",
		}, []string{"route", "method", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_netmaster_http_request_duration_seconds", Help: "Time to answer a request, by route and method.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 8),
		}, []string{"route", "method"}),
	}
	s := &server{
		serverContext: c, router: rt,
		objects: &objectHandlers{serverContext: c, router: rt, manifests: cfg.Manifests}, hosts: &hostHandlers{serverContext: c, evictAfter: cfg.EvictAfter}, endpoints: &endpointHandlers{serverContext: c, pods: cfg.Pods},
		services: &serviceHandlers{c}, store: &storeHandlers{serverContext: c, router: rt}, tokens: &tokenHandlers{cfg.Tokens},
		streams: &streams{serverContext: c, router: rt, monitors: monitors{byID: map[string]*monitorStream{}}, stopping: cfg.Stopping},
		members: &memberHandlers{serverContext: c, members: cfg.Members},
	}
	s.analysis, s.objects.streams = &analysisHandlers{c, s.streams}, s.streams
	s.diagnosis = &diagnosis{
		serverContext: c, router: rt, hosts: s.hosts, streams: s.streams, members: s.members,
		hostKeys: cfg.HostKeys, hostWatch: cfg.Watch, support: cfg.Support, peer: cfg.Peer,
	}
	return s
}

// newServer returns the server with all its routes.
func newServer(cfg Config) (*server, error) {
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	s := join(cfg)
	asks := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "contiv_netmaster_token_required", Help: "1 if clients need a token or a certificate, else 0.",
	})
	if cfg.Authenticate != nil {
		asks.Set(1)
	}
	for _, c := range append(s.streams.relayMetrics(), s.router.requests, s.router.durations, asks, findings{s.diagnosis}, clusterMetrics{cfg.Control, cfg.Watch, cfg.Cluster, cfg.EvictAfter}) {
		if err := cfg.Registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	for _, k := range collections() {
		s.router.names = append(s.router.names, k.collection)
		s.handleKind(k)
	}
	s.handleUnsupported()
	s.handleNetworkRules()
	s.handlePlugin()
	s.handleHosts()
	s.handleClusterServices()
	s.handleAgents()
	s.handleStore()
	s.handleTokens()
	s.handleDoctor()
	s.handleAnalysis()
	s.router.handleStream("GET", "/api/v1/monitor", access.View|access.WithinScope, nil, s.streams.watch).lasts = true
	for _, rt := range []*route{
		s.router.handleStream("POST", "/plugin/monitor/{id}", access.OwnHost, ofHostQuery, s.streams.deliver), // under an id that only asked agents know
		s.router.handleStream("POST", "/plugin/mirror", access.AnyHost, nil, s.streams.relay),                 // what the store lets every host read, and less
	} {
		rt.verb, rt.lasts = verbReport, true
	}
	s.handleMembers()
	s.handleApply()
	s.handlePending()
	s.handleEndpoints()
	s.handleServices()
	s.router.handle("DELETE", "/debug/epcleanup/tenant/{tenant}/{what}/{id}", access.AdminOnly, ofCleanup, s.endpoints.cleanup)
	s.router.handle("GET", "/version", everyone, nil, func(http.ResponseWriter, *request) (any, error) { return cfg.Version, nil })
	s.router.handle("GET", "/info", access.View, nil, func(_ http.ResponseWriter, r *request) (any, error) { return s.cluster.Info(r.Context()) })
	s.router.handle("GET", "/debug/ofnet", access.View, nil, s.endpoints.ofnet)
	s.router.handle("GET", "/healthz", access.Public, nil, func(http.ResponseWriter, *request) (any, error) { return "ok", nil })
	s.router.handleStream("GET", "/readyz", access.Public, nil, func(w http.ResponseWriter, r *request) { s.cluster.Health(r.Context()).ServeHTTP(w, r.Request) })
	shown := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{})
	s.router.handleStream("GET", "/metrics", access.View, nil, func(w http.ResponseWriter, r *request) { shown.ServeHTTP(w, r.Request) })
	var description []byte
	s.router.handleStream("GET", "/openapi.json", everyone, nil, func(w http.ResponseWriter, _ *request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(description) // the client may be gone
	})
	for _, rt := range s.router.routes {
		if err := rt.check(); err != nil {
			return nil, err
		}
	}
	var err error
	if description, err = openAPI(s.router.routes); err != nil {
		return nil, err
	}
	return s, nil
}

// everyone is all roles.
const everyone = access.View | access.WithinScope | access.AnyHost | access.Peer

// statusWriter remembers the status, and calls before (nil = nothing) when the
// header is about to be sent.
type statusWriter struct {
	http.ResponseWriter
	status int
	before func(http.Header)
}

func (w *statusWriter) send() {
	if w.before != nil {
		w.before(w.Header())
		w.before = nil
	}
}

func (w *statusWriter) Write(b []byte) (int, error) {
	w.send()
	return w.ResponseWriter.Write(b)
}

func (w *statusWriter) WriteHeader(status int) {
	w.send()
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController and MaxBytesReader reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *router) answer(w http.ResponseWriter, r *request, do func() (any, error)) {
	v, err := func() (v any, err error) {
		defer panicError(&err)
		return do()
	}()
	if err != nil {
		s.refuse(w, r.Request, err)
		return
	}
	switch v := v.(type) {
	case text:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(v)) // the client may be gone
	case iter.Seq[any]:
		w.Header().Set("Content-Type", "application/json")
		if err := writeList(w, v); err != nil {
			s.log.Debug("a list was not sent completely", "path", r.URL.Path, "error", err)
		}
	default:
		body, err := json.Marshal(v)
		if err != nil {
			s.refuse(w, r.Request, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n'))
	}
}

// writeList sends a JSON array while its members are made: a list of any length
// takes the memory of a few of them.
func writeList(w io.Writer, list iter.Seq[any]) error {
	b := bufio.NewWriterSize(w, 64<<10)
	first, more := byte('['), byte(',')
	for v := range list {
		body, err := json.Marshal(v)
		if err != nil {
			return err
		}
		_ = b.WriteByte(first) // a bufio.Writer keeps its first error for Flush
		if _, err := b.Write(body); err != nil {
			return err
		}
		first = more
	}
	if first != more {
		_ = b.WriteByte(first)
	}
	_, _ = b.WriteString("]\n")
	return b.Flush()
}

// ServeHTTP answers what has a route, and otherwise says in a sentence what is
// missing.
func (s *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	probe := &probeWriter{header: make(http.Header)}
	h.ServeHTTP(probe, r)
	s.serveUnknown(w, r, func(w http.ResponseWriter) {
		switch probe.status {
		case http.StatusNotFound:
			s.requests.WithLabelValues("none", methodLabel(r.Method), "404").Inc()
			s.refuse(w, r, model.Errorf(errNoRoute, "%s", s.noRoute(r.URL.Path)))
		case http.StatusMethodNotAllowed:
			s.requests.WithLabelValues("none", methodLabel(r.Method), "405").Inc()
			w.Header().Set("Allow", probe.header.Get("Allow"))
			s.refuse(w, r, model.Errorf(errMethod, "%s is not possible on %s; possible are %s", r.Method, r.URL.Path, probe.header.Get("Allow")))
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// methodLabel is the method of a request without a route, which may be any word
// that a client has thought of.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func (s *router) noRoute(path string) string {
	if !strings.HasPrefix(path, "/api/v1/") {
		return fmt.Sprintf("%s does not exist", clip([]byte(path)))
	}
	name := collectionIn(path)
	if slices.Contains(s.names, name) {
		return fmt.Sprintf("%s does not exist: a key is tenant:name, with / escaped as %%2F", clip([]byte(path)))
	}
	return fmt.Sprintf("collection %q does not exist; there are %s", clip([]byte(name)), strings.Join(s.names, ", "))
}

// collectionIn returns the collection of a path, "" if it is of none.
func collectionIn(path string) string {
	rest, _ := strings.CutPrefix(path, "/api/v1/")
	name, _, _ := strings.Cut(strings.TrimPrefix(rest, "inspect/"), "/")
	return name
}

// probeWriter takes the answer of the mux's own handlers.
type probeWriter struct {
	header http.Header
	status int
}

func (p *probeWriter) Header() http.Header         { return p.header }
func (p *probeWriter) Write(b []byte) (int, error) { return len(b), nil }
func (p *probeWriter) WriteHeader(status int)      { p.status = status }
