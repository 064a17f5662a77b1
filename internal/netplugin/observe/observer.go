package observe

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Config is what an Observer needs.
type Config struct {
	Host       model.HostName
	VTEP       netip.Addr
	DriverName string
	DriverWhy  string
	Version    string
	StateDir   string
	Log        *slog.Logger
	Driver     driver.Driver
	Can        driver.Capabilities    // of Driver
	Store      store.Mirrorer         // tells of netmasters' monitors
	Metrics    []prometheus.Collector // told beside the Observer's own
	DebugHooks bool                   // enables the endpoints that pause the mirror: tests only
	Support    *supportbundle.Support // what people who search for a fault get; nil = little
	FlowLog    FlowSink               // where the flow log goes; nil = there is none

	Cluster     *statemirror.State
	Control     *statemirror.ControlPlane
	Egress      *hostsync.Egress
	Underlay    *hostsync.Underlay
	Reached     *statemirror.SyncTracker
	Netmasters  *masterclient.Client
	Attachments *attachment.Service

	Agent Agent
	More  map[string]http.HandlerFunc // what the inspection answers beside the Observer's own, by http.ServeMux's patterns

	StatusEvery time.Duration // least time between two status writes
	StatusLook  time.Duration // how often the host's health is looked at when nothing happens
	StatusBeat  time.Duration // longest time between two status writes

	Now func() time.Time // the time of day
}

// Agent is what an Observer asks of the agent that it is part of.
type Agent interface {
	// Kick requests a sync of the data plane.
	Kick(reason string)
	// Named reports, by its error, whether the host's name is this agent's.
	Named() error
	// Owns reports, by its error, whether endpoints of this host may be created and released.
	Owns() error
	// Tunnels reports, by its error, which tunnels lead to no host.
	Tunnels() error
	// BGP returns the state of BGP; nil = there is none.
	BGP() *tables.BGPStatus
	// WriteStatus writes the host's status to the store.
	WriteStatus(ctx context.Context, now tables.HostStatus) error
}

// Observer tells of one host. Its exported methods are safe for concurrent use.
type Observer struct {
	cfg        Config
	watchers   *watchers
	flowLog    *flowLog // nil = none
	status     *status
	conditions *conditions
	judge      judge
	problems   problemLog
	metrics    *prometheus.Registry
	applyTime  prometheus.Histogram
}

// New returns an Observer of a host of which nothing is known yet.
func New(cfg Config) (*Observer, error) {
	a := &Observer{cfg: cfg, watchers: newWatchers(), problems: problemLog{log: cfg.Log, delay: logDelay}}
	a.status = newStatus(&a.cfg)
	a.conditions = &conditions{log: cfg.Log, texts: map[string]string{}, changed: a.status.request}
	a.judge = judge{&a.cfg, a.conditions}
	a.status.judge = a.judge
	if cfg.FlowLog != nil {
		a.flowLog = &flowLog{sink: cfg.FlowLog, log: cfg.Log, tell: a.conditions.set, watcher: a.watchers.enter(&watcher{logs: true})}
	}
	return a, a.registerMetrics()
}

// Observe monitors the data plane while there are watchers, until ctx ends, and sends the
// host's status until inner ends: results of running requests are included.
func (a *Observer) Observe(ctx, inner context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.status.run(inner) })
	if a.flowLog != nil {
		running.Go(func() { a.flowLog.run(ctx) })
	}
	running.Go(func() { a.monitor(ctx) })
	running.Go(func() { a.serveMonitors(ctx) })
	running.Wait()
	a.problems.close()
}

// SyncDone takes the outcome of a pass, from the runner's goroutine.
func (a *Observer) SyncDone(o statemirror.SyncStatus) {
	a.applyTime.Observe(o.Took.Seconds())
	a.status.request()
	if o.Err == nil {
		a.problems.update(o.ProblemTexts())
	}
}

// Registry has the metrics.
func (a *Observer) Registry() *prometheus.Registry { return a.metrics }

// RequestStatus has the status told soon, if it has changed.
func (a *Observer) RequestStatus() { a.status.request() }

// ReportStatus has the status told at once, changed or not: what was told may be
// gone from the store.
func (a *Observer) ReportStatus() { a.status.rewrite.Ring() }
