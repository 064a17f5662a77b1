package attachment

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
)

// Config is what a Service needs; all of it, unless it says otherwise.
type Config struct {
	Host       model.HostName
	DriverName string
	Can        driver.Capabilities
	Log        *slog.Logger
	StateDir   string // of journal and spool
	VXLANPort  int
	Names      bool // this host has a name server

	Cluster    *statemirror.State
	Egress     *hostsync.Egress
	Control    *statemirror.ControlPlane
	Underlay   *hostsync.Underlay
	Reached    *statemirror.SyncTracker
	Netmasters *masterclient.Client
	Agent      Agent

	Timeout     time.Duration // of one Attach
	SpoolEvery  time.Duration // how often the spool is looked at; 0 = 10 s
	OrphanGrace time.Duration // 0 = statemirror.OrphanGrace

	Hook func(step string) error // called at every one of Steps; its error fails the step
}

// Agent is what a Service needs of the agent that it is part of.
type Agent interface {
	// Kick requests a sync of the data plane.
	Kick(reason string)
	// AwaitFirst waits, for a while, for an agent that has just started.
	AwaitFirst(ctx context.Context)
	// Able reports, by its error, whether anything can be attached now.
	Able() error
	// Owns reports, by its error, whether endpoints of this host may be created and released.
	Owns() error
	// SetAttachmentsProblem says what is wrong with attachments as a whole; "" = nothing.
	SetAttachmentsProblem(text string)
}

// JournalDir is where the journal is in a state directory.
func JournalDir(stateDir string) string { return filepath.Join(stateDir, "attach") }

// deps is what the parts of a Service use: the journal, and others of this host. It has no
// state of its own.
type deps struct {
	cfg     Config
	agent   Agent
	log     *slog.Logger
	can     driver.Capabilities
	cluster *statemirror.State
	way     *hostsync.Egress
	masters *masterclient.Client
	reached *statemirror.SyncTracker
	bootID  string
	journal *journal

	attachTime *prometheus.HistogramVec
}

// Service attaches and detaches the containers of one host. Its exported methods
// are safe for concurrent use. It joins its parts, of which each owns its state; the
// journal, which they share, has a lock of its own and one for each attachment.
type Service struct {
	*deps
	Interfaces *Interfaces
	Ports      *PublishedPorts
	Infra      *InfraNetworks

	facts    *facts
	releaser *releaser
	attacher *attacher
	restorer *restorer
}

// New opens the journal. Recover, before anything is asked of the Service.
func New(cfg Config) (*Service, error) {
	if cfg.SpoolEvery == 0 {
		cfg.SpoolEvery = 10 * time.Second
	}
	if cfg.OrphanGrace == 0 {
		cfg.OrphanGrace = statemirror.OrphanGrace
	}
	journal, err := openJournal(JournalDir(cfg.StateDir), cfg.Log)
	if err != nil {
		return nil, err
	}
	return join(&deps{
		cfg: cfg, agent: cfg.Agent, log: cfg.Log, can: cfg.Can, cluster: cfg.Cluster, way: cfg.Egress, masters: cfg.Netmasters,
		reached: cfg.Reached, bootID: BootID(), journal: journal,
		attachTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_netplugin_request_seconds", Help: "Time of an attach or detach, by verb and outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"verb", "outcome"}),
	}), nil
}

// join makes the parts of a Service.
func join(d *deps) *Service {
	s := &Service{deps: d, Interfaces: &Interfaces{d}, Ports: &PublishedPorts{deps: d}, facts: &facts{deps: d}}
	s.releaser = &releaser{deps: d, ports: s.Ports, pending: waiting.NewBell(), followed: waiting.NewBell()}
	s.attacher = &attacher{deps: d, veths: s.Interfaces, releaser: s.releaser, facts: s.facts}
	s.restorer = &restorer{deps: d, restore: waiting.NewBell()}
	s.Infra = &InfraNetworks{deps: d, attacher: s.attacher, releaser: s.releaser, veths: s.Interfaces, infra: waiting.NewBell()}
	return s
}

// Attach implements attach.Service.
func (a *Service) Attach(ctx context.Context, r attach.Request) (attach.Result, error) {
	return a.attacher.Attach(ctx, r)
}

// Detach implements attach.Service.
func (a *Service) Detach(ctx context.Context, r attach.DetachRequest) error {
	return a.releaser.Detach(ctx, r)
}

// Collect implements attach.Service.
func (a *Service) Collect(ctx context.Context, r attach.CollectRequest) error {
	return a.releaser.Collect(ctx, r)
}

// Publish implements attach.Service.
func (a *Service) Publish(ctx context.Context, r attach.PublishRequest) (attach.PublishResult, error) {
	return a.Ports.Publish(ctx, r)
}

// Published lists what an attachment publishes.
func (a *Service) Published(k attach.Key) []attach.PortBinding { return a.Ports.Published(k) }

// Report implements attach.Service.
func (a *Service) Report(ctx context.Context, f attach.Fact) error { return a.facts.Report(ctx, f) }

// Run pays what is owed and puts back what the store lacks, until ctx ends. What
// was spooled is done first: started is called then.
func (a *Service) Run(ctx context.Context, started func()) {
	var running sync.WaitGroup
	running.Go(func() { a.releaser.releasePending(ctx) })
	running.Go(func() { a.releaser.releaseOrphans(ctx) })
	running.Go(func() { a.restorer.restoreMissing(ctx) })
	running.Go(func() { a.Infra.keepInfra(ctx) })
	a.releaser.replaySpool(ctx)
	a.releaser.pending.Ring()
	started()
	running.Wait()
}

// ReleasePending has what is owed paid now: the way to netmaster may be free again.
func (a *Service) ReleasePending() { a.releaser.pending.Ring() }

// RestoreMissing has what the store lacks put back now.
func (a *Service) RestoreMissing() { a.restorer.restore.Ring() }

// ReleaseOrphans has the endpoints released that no attachment knows: the store
// is followed again, or another one was met.
func (a *Service) ReleaseOrphans() { a.releaser.followed.Ring() }

// FollowInfra has the host's own endpoints looked at now.
func (a *Service) FollowInfra() { a.Infra.infra.Ring() }

// ContainerChange says how the container's interface differs from what it was given; "" = it
// does not, or nothing has been compared yet.
func (a *Service) ContainerChange(k attach.Key) string {
	return a.releaser.containerChanges.difference(k)
}

// Metrics are the Service's own.
func (a *Service) Metrics() []prometheus.Collector { return []prometheus.Collector{a.attachTime} }

// Problems says what people should know of journal, spool and refused labels.
func (a *Service) Problems() []compile.Problem {
	problems := slices.Concat(a.journal.problems(), a.Infra.problemsOfInfra(), a.facts.problems())
	if why := a.releaser.spoolError.Load(); why != nil && *why != "" {
		problems = append(problems, compile.Problem{Object: "spool", Text: *why})
	}
	return problems
}

// WhyUnwritable says why attachments cannot be written down; nil when they can.
func (a *Service) WhyUnwritable() error { return a.journal.whyUnwritable() }

// FreeSpace returns the bytes free in the journal's file system, none when it
// takes no more files, and whether it may be written at all.
func (a *Service) FreeSpace() (free uint64, writable bool, err error) { return a.journal.freeSpace() }

// Entries returns the journal in the order of its keys; it must not be changed.
func (a *Service) Entries() []Entry { return a.journal.all() }

// Entry returns what the journal knows of an attachment.
func (a *Service) Entry(k attach.Key) (Entry, bool) { return a.journal.get(k) }

// File is where the journal has an attachment.
func (a *Service) File(k attach.Key) string { return a.journal.path(k) }

// Finished returns the attachments that stand.
func (a *Service) Finished() []statemirror.Attachment { return a.journal.attached() }

func (c *Config) spool() attach.Spool {
	return attach.Spool{Dir: filepath.Join(c.StateDir, attach.SpoolDir)}
}

func outcomeLabel(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, model.ErrUnavailable):
		return "unavailable"
	}
	return "failed"
}

// BootID tells one run of the kernel from another; empty when it cannot be known.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
