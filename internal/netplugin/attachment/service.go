package attachment

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
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
	WayOut     *statemirror.Egress
	Control    *statemirror.ControlPlane
	Underlay   *statemirror.Underlay
	Reached    *statemirror.SyncTracker
	Netmasters *masterclient.Client

	Timeout    time.Duration // of one Attach
	SpoolEvery time.Duration // how often the spool is looked at; 0 = 10 s
	LateGrace  time.Duration // 0 = statemirror.LateGrace

	Kick  func(reason string)     // has a pass made
	Begun func(context.Context)   // waits, for a while, for an agent that has just started
	Ready func() error            // why nothing can be attached now
	Mine  func() error            // why endpoints of this host may not be created or released now
	Tell  func(text string)       // what is wrong with attachments as a whole; "" = nothing
	Hook  func(step string) error // called at every one of Steps; its error fails the step
}

// JournalDir is where the journal is in a state directory.
func JournalDir(stateDir string) string { return filepath.Join(stateDir, "attach") }

// Service attaches and detaches the containers of one host. Its exported methods
// are safe for concurrent use.
type Service struct {
	cfg     Config
	log     *slog.Logger
	can     driver.Capabilities
	cluster *statemirror.State
	way     *statemirror.Egress
	control *statemirror.ControlPlane
	masters *masterclient.Client
	reached *statemirror.SyncTracker
	kick    func(reason string)

	bootID     string
	journal    *journal
	turns      waiting.Turns[attach.Key] // one request at a time for an attachment
	early      early
	publishing publishing
	owe        waiting.Bell // calls payOwed
	custody    waiting.Bell // calls keepAttachments
	followed   waiting.Bell // calls releaseOrphans
	infra      waiting.Bell // calls keepInfra
	changes    infraChanges
	// infraProblems are those of the host's own endpoints, by what they are of; nil = none.
	infraProblems atomic.Pointer[map[string]string]
	// spoolTrouble is why the spool cannot be read; empty = it can.
	spoolTrouble atomic.Pointer[string]
	inside       inside
	attachTime   *prometheus.HistogramVec
}

// New opens the journal. Recover, before anything is asked of the Service.
func New(cfg Config) (*Service, error) {
	if cfg.SpoolEvery == 0 {
		cfg.SpoolEvery = 10 * time.Second
	}
	if cfg.LateGrace == 0 {
		cfg.LateGrace = statemirror.LateGrace
	}
	journal, err := openJournal(JournalDir(cfg.StateDir), cfg.Log)
	if err != nil {
		return nil, err
	}
	return &Service{
		cfg: cfg, log: cfg.Log, can: cfg.Can, cluster: cfg.Cluster, way: cfg.WayOut, control: cfg.Control, masters: cfg.Netmasters,
		reached: cfg.Reached, kick: cfg.Kick, bootID: BootID(), journal: journal,
		owe: waiting.NewBell(), custody: waiting.NewBell(), followed: waiting.NewBell(), infra: waiting.NewBell(),
		attachTime: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "contiv_netplugin_request_seconds", Help: "Time of one attach or detach, by outcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"verb", "outcome"}),
	}, nil
}

// Run pays what is owed and puts back what the store lacks, until ctx ends. What
// was spooled is done first: started is called then.
func (a *Service) Run(ctx context.Context, started func()) {
	var running sync.WaitGroup
	running.Go(func() { a.payOwed(ctx) })
	running.Go(func() { a.releaseOrphans(ctx) })
	running.Go(func() { a.keepAttachments(ctx) })
	running.Go(func() { a.keepInfra(ctx) })
	a.replaySpool(ctx)
	a.owe.Ring()
	started()
	running.Wait()
}

// Pay has what is owed paid now: the way to netmaster may be free again.
func (a *Service) Pay() { a.owe.Ring() }

// PutBack has what the store lacks put back now.
func (a *Service) PutBack() { a.custody.Ring() }

// ReleaseOrphans has the endpoints released that no attachment knows: the store
// is followed again, or another one was met.
func (a *Service) ReleaseOrphans() { a.followed.Ring() }

// FollowInfra has the host's own endpoints looked at now.
func (a *Service) FollowInfra() { a.infra.Ring() }

// Close lets others have the ports that are published.
func (a *Service) Close() { a.publishing.held.Keep(nil) }

// Metrics are the Service's own.
func (a *Service) Metrics() []prometheus.Collector { return []prometheus.Collector{a.attachTime} }

// Problems says what people should know of journal and spool.
func (a *Service) Problems() []compile.Problem {
	problems := append(a.journal.problems(), a.problemsOfInfra()...)
	if why := a.spoolTrouble.Load(); why != nil && *why != "" {
		problems = append(problems, compile.Problem{Object: "spool", Text: *why})
	}
	return problems
}

// Trouble says why attachments cannot be written down; nil when they can.
func (a *Service) Trouble() error { return a.journal.trouble() }

// FreeSpace returns the bytes free in the journal's file system, none when it
// takes no more files, and whether it may be written at all.
func (a *Service) FreeSpace() (free uint64, writable bool, err error) { return a.journal.freeSpace() }

// Entries returns the journal in the order of its keys; it must not be changed.
func (a *Service) Entries() []Entry { return a.journal.all() }

// Entry returns what the journal knows of an attachment.
func (a *Service) Entry(k attach.Key) (Entry, bool) { return a.journal.get(k) }

// File is where the journal has an attachment.
func (a *Service) File(k attach.Key) string { return a.journal.path(k) }

// Standing returns the attachments that stand.
func (a *Service) Standing() []statemirror.Owned { return a.journal.standing() }

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
