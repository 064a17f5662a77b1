package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/filelock"
	"github.com/contiv/netplugin/v2/internal/base/reconcile"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/fabric"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/multicast"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/peerhealth"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/netplugin/tunnelprobe"
	"github.com/contiv/netplugin/v2/internal/security/connlimit"
	"github.com/contiv/netplugin/v2/internal/security/origin"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store/relay"
)

// Agent is one host's agent. Make it with New and let it Run once.
type Agent struct {
	cfg     Config
	can     driver.Capabilities // of cfg.Driver
	log     *slog.Logger
	lock    *os.File // held while the agent lives
	cluster *statemirror.State
	way     *statemirror.Egress
	control *statemirror.ControlPlane
	masters *masterclient.Client
	masterclient.Objects
	*attachment.Service
	*observe.Observer
	underlay   statemirror.Underlay
	lacking    *statemirror.Unsupported
	names      *nameServer
	answers    *l2announce.Answerer
	announcer  *l2announce.Announcer
	announced  announced
	macs       macTable
	fabric     *fabric.Router
	prober     *peerhealth.Prober  // nil = no host is asked
	tunnels    *tunnelprobe.Prober // nil = no tunnel is tested
	relay      *relay.Reader       // nil = netmasters are not mirrored from
	listener   *multicast.Listener // nil = the driver cannot say who hears what
	legacyPods atomic.Int64        // attached by 1.x's contivk8s since the start
	reached    statemirror.SyncTracker
	pace       *statemirror.Pace
	again      *time.Timer // kicks when a step of pace is due
	runner     *reconcile.Runner[driver.Event]

	installation installation
	since        string // RFC 3339: when this agent began
	naming       waiting.Value[naming]
	reannounce   waiting.Bell

	sockets  []*socket               // the CNI plugin's is the first
	adapters map[string]http.Handler // on that, by pattern
	rest     net.Listener            // nil without RESTAddress
}

var _ attach.Service = (*Agent)(nil)

// New takes the host: it locks the state directory, takes the socket over from
// a dead predecessor, and undoes what did not survive it. It fails with a
// sentence when another netplugin runs here. The store and netmaster need not
// be reachable. Close or Run release what it took.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Agent{
		cfg: cfg, can: cfg.Driver.Capabilities(), log: cfg.Log,
		reannounce: waiting.NewBell(), pace: statemirror.NewPace(), lacking: statemirror.NewUnsupported(cfg.DriverName, cfg.Driver.Capabilities()),
		since:    time.Now().UTC().Format(time.RFC3339),
		adapters: map[string]http.Handler{},
	}
	if err := a.take(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// take is the part of New that can fail.
func (a *Agent) take(ctx context.Context) (err error) {
	cfg := &a.cfg
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if a.lock, err = lockFile(filepath.Join(cfg.StateDir, "lock")); err != nil {
		return err
	}
	if a.installation, err = openInstallation(cfg.StateDir, cfg.Log); err != nil {
		return err
	}
	if a.masters, err = masterclient.New(masterclient.Config{Host: cfg.Host, Fixed: cfg.Netmasters, TLS: cfg.TLS.APIClient, Token: cfg.Token, NetworkToken: cfg.NetworkToken, Joined: cfg.Joined, Allowed: a.mine}); err != nil {
		return err
	}
	a.Objects = a.masters.Objects()
	a.cluster, err = statemirror.New(statemirror.Config{
		Host: cfg.Host, Control: cfg.Control, VTEP: cfg.VTEP, Store: a.mirrored(), Log: cfg.Log, StateDir: cfg.StateDir, Grace: cfg.StoreGrace,
		Kick: a.kick, Soon: func(reason string) { a.runner.Soon(reason) },
		Own:       func() []statemirror.Owned { return a.Standing() },
		OnOwnHost: a.reannounce.Ring,
		OnLost:    func() { a.PutBack() },
		OnInfra:   func() { a.FollowInfra() },
		OnFreeze: func(why string) {
			a.SetStanding(observe.AboutStore, why)
			a.PutBack()
			a.ReleaseOrphans()
			if why == "" {
				a.Pay()
			}
		},
	})
	if err != nil {
		return err
	}
	a.control = statemirror.NewControlPlane(a.cluster, statemirror.ControlConfig{
		Off: cfg.ContainersReachControl, Netmasters: cfg.Netmasters, Addresses: cfg.StoreAddresses, Listening: a.listening,
	})
	a.answers = l2announce.New(cfg.Log, a.askAnswers(time.Now().UnixNano()), func() { a.kick("answers to neighbours") })
	a.announcer = l2announce.NewAnnouncer(cfg.Log, cfg.Uplinks, a.can.TakesUplinks)
	a.fabric = a.newFabric()
	a.prober, a.tunnels = a.newProber(), a.newTunnelProber()
	a.listener = a.newListener()
	a.way = statemirror.NewEgress(a.cluster, a.control, statemirror.EgressConfig{
		Able: a.can.Egress, Able6: a.can.Egress6 && statemirror.HasIPv6(), Services: a.can.Egress && a.can.ExternalServices, Frontends: a.can.Frontends, RoutedNetworks: a.can.RoutedNetworks, ExternalBackends: a.can.ExternalBackends,
		IPForward: cfg.IPForward, VXLANPort: cfg.VXLANPort, Underlay: &a.underlay,
		Listen: func(ctx context.Context, addr string) (net.Listener, error) {
			return transport.Listen(ctx, addr, nil, cfg.Log)
		}, // load balancers know no certificates
		Answer: a.answers.Want,
	})
	if a.way.Services { // this host leads to them, whatever runs here
		a.cluster.RequireTenant(model.DefaultTenant)
	}
	a.underlay = statemirror.Underlay{VTEP: cfg.VTEP, MTU: cfg.UnderlayMTU, Uplinks: cfg.Uplinks}
	a.Service, err = attachment.New(attachment.Config{
		Host: cfg.Host, DriverName: cfg.DriverName, Can: a.can, Log: cfg.Log, StateDir: cfg.StateDir, VXLANPort: cfg.VXLANPort, Names: !cfg.NoDNS,
		Cluster: a.cluster, WayOut: a.way, Control: a.control, Underlay: &a.underlay, Reached: &a.reached, Netmasters: a.masters,
		Timeout: cfg.AttachTimeout, SpoolEvery: cfg.SpoolEvery, LateGrace: cfg.LateGrace,
		Agent: forParts{a}, Hook: cfg.Hook,
	})
	if err != nil {
		return err
	}
	a.runner = reconcile.New(reconcile.Config[driver.Event]{
		Pass:   a.pass,
		Events: cfg.Driver.Events(),
		Reason: func(e driver.Event) string { return "driver: " + e.Reason },
		Drift:  cfg.Drift, DriftSoonest: cfg.driftSoonest,
		// Containers come in bursts; one alone is not held up.
		Spacing: 5 * time.Millisecond,
		OnError: func(err error, in time.Duration) {
			a.log.Error("the data plane does not follow", "error", err, "retryIn", in)
		},
	})
	a.again = time.AfterFunc(time.Hour, func() { a.kick("policies that wait") })
	a.again.Stop()
	a.names = newNameServer(cfg, a.way.SetNameServer)
	a.Observer, err = observe.New(observe.Config{
		Host: cfg.Host, VTEP: cfg.VTEP, DriverName: cfg.DriverName, DriverWhy: cfg.DriverWhy, Version: cfg.Version, StateDir: cfg.StateDir,
		Log: cfg.Log, Driver: cfg.Driver, Can: a.can, Store: cfg.Store, DebugHooks: cfg.DebugHooks, FlowLog: cfg.FlowLog, Support: cfg.Support,
		More:    map[string]http.HandlerFunc{"GET /inspect/nameserver": a.getNameserver, "GET /inspect/answering": a.getAnswering, "GET /inspect/bgp": a.getBGP, "GET /inspect/mirror": a.getMirroring},
		Metrics: slices.Concat(a.names.metrics(), a.answerMetrics(), a.mirrorMetrics(), a.peerMetrics(), []prometheus.Collector{a.fabric.Collector(), members{a.listener}, a.tunnels}, cfg.Metrics),
		Cluster: a.cluster, WayOut: a.way, Underlay: &a.underlay, Reached: &a.reached, Netmasters: a.masters, Attachments: a.Service, Agent: forParts{a},
		StatusEvery: cfg.StatusEvery, StatusLook: cfg.StatusLook, StatusBeat: cfg.StatusBeat, Now: cfg.Now,
	})
	if err != nil {
		return err
	}
	if err := a.HandleAt(ctx, cfg.Socket, "CNI socket", nil); err != nil {
		return err
	}
	if cfg.RESTAddress != "" {
		if a.rest, err = transport.Listen(ctx, cfg.RESTAddress, cfg.TLS.InspectionServer, cfg.Log); err != nil {
			return fmt.Errorf("listen for inspection: %w; --rest-address chooses another address", err)
		}
	}
	return a.Recover()
}

// Handle has an orchestrator's adapter answer on the CNI socket, beside
// attach.Service: pattern is http.ServeMux's and none of attach's paths. It is
// for between New and Run.
func (a *Agent) Handle(pattern string, h http.Handler) { a.adapters[pattern] = h }

func (a *Agent) kick(reason string) { a.runner.Kick(reason) }

// listening is where this process listens for people and machines: inspection,
// then profiling.
func (a *Agent) listening() (at []string) {
	if r := a.RESTAddr(); r != nil {
		at = append(at, r.String())
	}
	if a.cfg.DebugAddress != "" {
		at = append(at, a.cfg.DebugAddress)
	}
	return at
}

// PauseMirror stops what the host learns of the cluster, ResumeMirror lets it
// go on: tests of what ignorance must not open.
func (a *Agent) PauseMirror() { a.cluster.Pause() }

// ResumeMirror undoes PauseMirror.
func (a *Agent) ResumeMirror() { a.cluster.Resume() }

// RESTAddr is where the inspection interface listens; nil without one.
func (a *Agent) RESTAddr() net.Addr {
	if a.rest == nil {
		return nil
	}
	return a.rest.Addr()
}

// Close releases what New took. Run calls it.
func (a *Agent) Close() error {
	var errs []error
	if a.Service != nil {
		a.Ports.Close()
	}
	listeners := []net.Listener{a.rest}
	for _, s := range a.sockets {
		listeners = append(listeners, s.listener)
	}
	for _, l := range listeners {
		if l != nil {
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if a.masters != nil {
		a.masters.Close()
	}
	if a.again != nil {
		a.again.Stop()
	}
	if a.lock != nil {
		errs = append(errs, filelock.Unlock(a.lock))
		a.lock = nil
	}
	return errors.Join(errs...)
}

// lockFile takes an exclusive lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := filelock.Lock(f); err != nil {
		_ = f.Close() // nothing was written
		if !errors.Is(err, filelock.ErrHeld) {
			return nil, fmt.Errorf("lock state directory: %w", err)
		}
		return nil, model.Errorf(model.ErrConflict,
			"another netplugin uses the state directory %s; stop it, or give this one its own --state-dir, --cni-socket and --rest-address", filepath.Dir(path))
	}
	return f, nil
}

// listenUnix listens on a path, replacing the socket of a dead process.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return nil, model.Errorf(model.ErrConflict,
			"another netplugin answers at %s; stop it, or give this one its own --cni-socket", path)
	}
	if st, err := os.Lstat(path); err == nil {
		if st.Mode()&os.ModeSocket == 0 {
			return nil, model.Errorf(model.ErrConflict, "--cni-socket %q: a file that is not a socket is there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove stale one: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // who reaches it can attach as anybody
		return nil, errors.Join(fmt.Errorf("restrict: %w", err), l.Close())
	}
	return l, nil
}

// compareFor is how long the host is not made known while it waits for the cluster's
// settings.
const compareFor = 2 * time.Second

// Run works until ctx ends, then stops in order: no new requests, those under
// way finish, the loop ends; the data plane keeps forwarding. It returns nil
// after ctx's end, or why the agent cannot work.
func (a *Agent) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// What requests under way need outlives ctx until they are done.
	inner, stopInner := context.WithCancel(context.WithoutCancel(ctx))
	defer stopInner()

	var outside, inside sync.WaitGroup
	serve := func(l net.Listener, h http.Handler, what string) {
		outside.Go(func() {
			if err := serveHTTP(ctx, l, h); err != nil {
				stop(fmt.Errorf("serve %s: %w", what, err))
			}
		})
	}
	inside.Go(func() { a.cluster.Run(inner, a.cfg.TenantLinger) })
	if a.relay != nil {
		inside.Go(func() { a.relay.Run(inner) })
	}
	inside.Go(func() { _ = a.runner.Run(inner) }) // its error is inner's end
	inside.Go(func() { a.Observe(ctx, inner) })
	inside.Go(func() { a.cluster.Guard.Remember(inner) })
	inside.Go(func() { a.cluster.Guard.RememberHosts(inner, a.cluster.Hosts) })
	inside.Go(func() { a.masters.Discover(inner, a.cfg.Store, a.log) })
	inside.Go(func() { a.control.Run(inner) })
	compared := make(chan struct{})
	inside.Go(func() {
		select {
		case <-ctx.Done(): // a host that cannot work is not made known
			return
		case <-compared:
		case <-time.After(compareFor): // what cut the store off may be for announce to take back
		}
		if err := a.announce(inner); err != nil {
			stop(err)
		}
	})
	outside.Go(func() { a.names.serveNames(ctx, a) })
	outside.Go(func() { a.way.Guard(ctx) })
	outside.Go(func() { a.way.Watch(ctx, a.fabric.LostTable, a.fabric.LostRoute) })
	outside.Go(func() { a.way.AnswerHealth(ctx) })
	outside.Go(func() { a.answers.Run(ctx) })
	outside.Go(func() { a.announcer.Run(ctx) })
	outside.Go(func() { a.fabric.Run(ctx) })
	outside.Go(func() { a.masters.Say(ctx, a.log, a.cluster.Stale) })
	if a.listener != nil {
		outside.Go(func() { a.listener.Run(ctx) })
	}
	if a.prober != nil {
		outside.Go(func() { a.prober.Run(ctx) })
	}
	if a.tunnels != nil {
		outside.Go(func() { a.tunnels.Run(ctx) })
	}
	outside.Go(func() {
		if err := a.compare(ctx); err != nil {
			stop(err)
			return
		}
		close(compared)
	})
	spooled := make(chan struct{})
	outside.Go(func() { a.Service.Run(ctx, func() { close(spooled) }) })
	<-spooled
	for _, s := range a.sockets {
		outside.Go(func() {
			if err := a.serveSocket(ctx, s); err != nil {
				stop(fmt.Errorf("serve the %s: %w", s.what, err))
			}
		})
	}
	if a.rest != nil {
		isOurs := func(name string) bool { return strings.EqualFold(name, string(a.cfg.Host)) }
		serve(a.rest, connlimit.New(connlimit.Config{Body: 1 << 20}).Handler(origin.Handler(origin.Config{IsOurs: isOurs}, a.Handler(a.More()))), "inspection")
	}
	a.log.Info("netplugin is running", "host", a.cfg.Host, "vtep", a.cfg.VTEP, "driver", a.cfg.DriverName, "why", a.cfg.DriverWhy,
		"socket", a.cfg.Socket, "attachments", len(a.Entries()))

	outside.Wait()
	stopInner()
	inside.Wait()
	err := a.Close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return errors.Join(cause, err)
	}
	return err
}

// shutdownGrace is how long requests under way may take at the end; an
// attachment that takes longer is undone at the next start.
const shutdownGrace = 5 * time.Second

func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, stop := context.WithTimeout(base, shutdownGrace)
	defer stop()
	err := srv.Shutdown(grace)
	if err != nil {
		cancel() // requests under way give up and undo
		again, stopAgain := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer stopAgain()
		if err = srv.Shutdown(again); err != nil {
			err = srv.Close()
		}
	}
	if ended := <-failed; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	return err
}

// compare waits for the cluster's settings and checks that the flags do not
// contradict them; and gives up when a host without any attachment cannot reach
// the store soon after its start: somebody has just given a wrong address.
func (a *Agent) compare(ctx context.Context) error {
	first := len(a.Entries()) == 0 && a.cfg.FirstStart > 0
	wctx, cancel := ctx, context.CancelFunc(func() {})
	if first {
		wctx, cancel = context.WithTimeout(ctx, a.cfg.FirstStart)
	}
	g, err := a.cluster.Lookup.AwaitSettings(ctx, wctx)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return model.Errorf(model.ErrUnavailable,
			"the cluster's store does not answer: %w; if the address is wrong, give it with --etcd-endpoints or --consul-endpoints", a.cluster.Stale())
	}
	if err := a.Ports.AssignPrivate(ctx); err != nil {
		return err
	}
	if want := a.cfg.FwdMode; want != "" && g.FwdMode != want {
		return model.Errorf(model.ErrConflict,
			"--fwdmode %s contradicts the cluster's forwarding mode, which is %s: leave the flag out, or change the cluster with 'netctl global set --fwd-mode %s'", want, g.FwdMode, want)
	}
	if want := a.cfg.PvtSubnet; want.IsValid() && g.PvtSubnet.IsValid() && g.PvtSubnet != want {
		return model.Errorf(model.ErrConflict,
			"--private-subnet %s contradicts the cluster's, which is %s: leave the flag out, or change the cluster with 'netctl global set --private-subnet %s'", want, g.PvtSubnet, want)
	}
	return nil
}
