package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/internal/base/durable"
	"github.com/contiv/netplugin/v2/internal/base/reconcile"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/attachment"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostchanges"
	"github.com/contiv/netplugin/v2/internal/netplugin/hostsync"
	"github.com/contiv/netplugin/v2/internal/netplugin/l2announce"
	"github.com/contiv/netplugin/v2/internal/netplugin/masterclient"
	"github.com/contiv/netplugin/v2/internal/netplugin/multicast"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/statemirror"
	"github.com/contiv/netplugin/v2/internal/security/httpguard"
	"github.com/contiv/netplugin/v2/internal/security/transport"
)

// Agent is one host's agent. Make it with New and let it Run once.
type Agent struct {
	cfg  Config
	can  driver.Capabilities // of cfg.Driver
	lock *os.File            // held while the agent lives

	mirror       *mirror
	masters      *masterclient.Client
	lease        *hostLease
	registration *registration
	Attachments  *attachment.Service
	Observer     *observe.Observer
	sockets      *runtimeSockets
	legacy       *legacyPods

	dataPlane *dataPlane
	runner    *reconcile.Runner[driver.Event] // of pass
	reached   statemirror.SyncTracker
	names     *nameServer
	l2        *l2Announcers
	bgp       *bgpRoutes
	probers   probers
	listener  *multicast.Listener // nil = the driver cannot say who hears what
}

// New takes the host: it locks the state directory, takes the socket over from
// a dead predecessor, and undoes what did not survive it. It fails with a
// sentence when another netplugin runs here. The store and netmaster need not
// be reachable. Close or Run release what it took.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	a := &Agent{
		cfg: cfg, can: cfg.Driver.Capabilities(), mirror: &mirror{}, lease: &hostLease{host: cfg.Host},
		sockets: &runtimeSockets{log: cfg.Log, adapters: map[string]http.Handler{}},
	}
	if err := a.take(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// take is the part of New that can fail.
func (a *Agent) take(ctx context.Context) (err error) {
	since := time.Now().UTC().Format(time.RFC3339)
	cfg := &a.cfg
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	if a.lock, err = lockFile(filepath.Join(cfg.StateDir, "lock")); err != nil {
		return err
	}
	if a.lease.installation, err = openInstallation(cfg.StateDir, cfg.Log); err != nil {
		return err
	}
	if a.masters, err = masterclient.New(masterclient.Config{Host: cfg.Host, Fixed: cfg.Netmasters, Seeds: cfg.Seeds, TLS: cfg.TLS.APIClient, Token: cfg.Token, NetworkToken: cfg.NetworkToken, Joined: cfg.Joined, Allowed: a.checkOwnsHost}); err != nil {
		return err
	}
	reannounce := waiting.NewBell()
	from, reader := mirrored(cfg, a.masters)
	a.mirror.source, a.mirror.relay = from, reader
	a.mirror.cluster, err = statemirror.New(statemirror.Config{
		Host: cfg.Host, Control: cfg.Control, VTEP: cfg.VTEP, Store: from, Log: cfg.Log, StateDir: cfg.StateDir, HostChanges: hostchanges.Open(cfg.StateDir, cfg.Log), Grace: cfg.StoreGrace,
		Agent: forMirror{agentPort{a}, reannounce},
	})
	if err != nil {
		return err
	}
	a.mirror.control = statemirror.NewControlPlane(a.mirror.cluster, statemirror.ControlConfig{
		Off: cfg.ContainersReachControl, Netmasters: cfg.Netmasters, Addresses: cfg.StoreAddresses, Listening: a.listening,
	})
	a.l2 = &l2Announcers{
		memberships: a.can.Memberships, log: cfg.Log,
		answers:   l2announce.New(cfg.Log, requestL2Addresses(cfg, a.lease, a.masters, time.Now().UnixNano()), func() { a.kick("answers to neighbours") }),
		announcer: l2announce.NewAnnouncer(cfg.Log, cfg.Uplinks, a.can.TakesUplinks),
	}
	repairs := &hostRepairs{log: cfg.Log}
	a.bgp = newBGPRoutes(cfg, a.can.TakesUplinks, a.mirror, repairs, a.kick)
	a.probers = probers{
		prober:  newProber(cfg, a.mirror.cluster),
		tunnels: newTunnelProber(cfg, a.can.TunnelProber, a.mirror, func() { a.Observer.RequestStatus() }),
	}
	a.listener = newListener(cfg, a.can.Memberships, a.kick)
	a.mirror.way = hostsync.NewEgress(a.mirror.cluster, a.mirror.control, hostsync.EgressConfig{
		Able: a.can.Egress, Able6: a.can.Egress6 && hostsync.HasIPv6(), Services: a.can.Egress && a.can.ExternalServices, Frontends: a.can.Frontends, RoutedNetworks: a.can.RoutedNetworks, ExternalBackends: a.can.ExternalBackends,
		IPForward: cfg.IPForward, VXLANPort: cfg.VXLANPort, Underlay: &a.mirror.underlay,
		Listen: func(ctx context.Context, addr string) (net.Listener, error) {
			return transport.Listen(ctx, addr, nil, cfg.Log)
		}, // load balancers know no certificates
		Answer: a.l2.answers.Want, Repairs: repairs, Sockets: hostservices.Config{Log: cfg.Log, Cgroup: cfg.Cgroup, Pins: cfg.SocketPins, Repairs: repairs}, ClientPins: cfg.ClientPins,
	})
	if a.mirror.way.Services { // this host leads to them, whatever runs here
		a.mirror.cluster.RequireTenant(model.DefaultTenant)
	}
	a.mirror.underlay = hostsync.Underlay{VTEP: cfg.VTEP, MTU: cfg.UnderlayMTU, Uplinks: cfg.Uplinks}
	a.Attachments, err = attachment.New(attachment.Config{
		Host: cfg.Host, DriverName: cfg.DriverName, Can: a.can, Log: cfg.Log, StateDir: cfg.StateDir, VXLANPort: cfg.VXLANPort, Names: !cfg.NoDNS,
		Cluster: a.mirror.cluster, Egress: a.mirror.way, Control: a.mirror.control, Underlay: &a.mirror.underlay, Reached: &a.reached, Netmasters: a.masters,
		Timeout: cfg.AttachTimeout, SpoolEvery: cfg.SpoolEvery, OrphanGrace: cfg.OrphanGrace,
		Agent: agentPort{a}, Hook: cfg.Hook,
	})
	if err != nil {
		return err
	}
	a.runner = reconcile.New(reconcile.Config[driver.Event]{
		Pass:   a.sync,
		Events: cfg.Driver.Events(),
		Reason: func(e driver.Event) string { return "driver: " + e.Reason },
		Drift:  cfg.Drift, DriftSoonest: cfg.driftSoonest,
		// Containers come in bursts; one alone is not held up.
		Spacing: 5 * time.Millisecond,
		OnError: func(err error, in time.Duration) {
			a.cfg.Log.Error("the data plane is not in sync", "error", err, "retryIn", in)
		},
	})
	a.legacy = &legacyPods{attachments: a.Attachments, masters: a.masters, cluster: a.mirror.cluster, log: cfg.Log, timeout: cfg.AttachTimeout, kick: a.kick}
	a.dataPlane = &dataPlane{
		driver: cfg.Driver, name: cfg.DriverName, can: a.can, predecessor: cfg.Predecessor, interfaces: a.Attachments.Interfaces, log: cfg.Log,
		unsupported: statemirror.NewUnsupported(cfg.DriverName, a.can), pace: statemirror.NewPolicyPacer(),
	}
	a.dataPlane.retry = time.AfterFunc(time.Hour, func() { a.kick("policies that wait") })
	a.dataPlane.retry.Stop()
	a.names = newNameServer(cfg, a.mirror.way.SetNameServer)
	can := a.can
	if can.Drifting != nil {
		can.Drifting = driver.DriftReporters{can.Drifting, repairs}
	}
	a.Observer, err = observe.New(observe.Config{
		Host: cfg.Host, VTEP: cfg.VTEP, DriverName: cfg.DriverName, DriverWhy: cfg.DriverWhy, Version: cfg.Version, StateDir: cfg.StateDir,
		Log: cfg.Log, Driver: cfg.Driver, Can: can, Store: from, DebugHooks: cfg.DebugHooks, FlowLog: cfg.FlowLog, Support: cfg.Support,
		More:    map[string]http.HandlerFunc{"GET /inspect/nameserver": a.getNameserver, "GET /inspect/answering": a.l2.getL2Announcements, "GET /inspect/bgp": a.bgp.getBGP, "GET /inspect/mirror": a.mirror.getMirroring},
		Metrics: slices.Concat(a.names.metrics(), a.l2.metrics(), a.mirror.mirrorMetrics(), a.probers.peerMetrics(), []prometheus.Collector{a.bgp.fabric.Collector(), members{a.listener}, a.probers.tunnels}, cfg.Metrics),
		Cluster: a.mirror.cluster, Control: a.mirror.control, Egress: a.mirror.way, Underlay: &a.mirror.underlay, Reached: &a.reached, Netmasters: a.masters, Attachments: a.Attachments, Agent: agentPort{a},
		StatusEvery: cfg.StatusEvery, StatusLook: cfg.StatusLook, StatusBeat: cfg.StatusBeat, Now: cfg.Now,
	})
	if err != nil {
		return err
	}
	a.registration = &registration{
		cfg: cfg, answersProbes: a.can.TunnelProber != nil, masters: a.masters, mirror: a.mirror, lease: a.lease,
		attachments: a.Attachments, observer: a.Observer, way: a.newLifeline(), listening: a.listening, kick: a.kick,
		reannounce: reannounce, since: since,
	}
	if err := a.HandleAt(ctx, cfg.Socket, "CNI socket", nil); err != nil {
		return err
	}
	if cfg.RESTAddress != "" {
		if a.sockets.rest, err = transport.Listen(ctx, cfg.RESTAddress, cfg.TLS.InspectionServer, cfg.Log); err != nil {
			return fmt.Errorf("listen for inspection: %w; --rest-address chooses another address", err)
		}
	}
	return a.Attachments.Recover()
}

// Handle has an orchestrator's adapter answer on the CNI socket, beside
// attach.Service: pattern is http.ServeMux's and none of attach's paths. It is
// for between New and Run.
func (a *Agent) Handle(pattern string, h http.Handler) { a.sockets.adapters[pattern] = h }

// Runtime is what container runtimes ask of this host. It is for after New.
func (a *Agent) Runtime() attach.Service { return runtimeService{a.Attachments, a.Observer} }

// Objects reads objects of the cluster from netmaster.
func (a *Agent) Objects() masterclient.Objects { return a.masters.Objects() }

// HandleAt has an orchestrator's adapter answer on a unix socket of its own, for root
// only; what is a word for it. It is for between New and Run. Errors: another process
// answers there, or a file that is no socket is there.
func (a *Agent) HandleAt(ctx context.Context, path, what string, h http.Handler) error {
	return a.sockets.add(ctx, path, what, h)
}

// SetSeeds takes netmasters that came or went, as Config.Seeds.
func (a *Agent) SetSeeds(urls []string) {
	if err := a.masters.SetSeeds(urls); err != nil {
		a.cfg.Log.Warn("netmasters' addresses cannot be used", "error", err)
	}
}

// Netmasters returns the base URLs of the netmasters that are known now.
func (a *Agent) Netmasters() []string {
	bases, _ := a.masters.Known()
	return strings.Split(bases, ",")
}

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
func (a *Agent) PauseMirror() { a.mirror.cluster.Pause() }

// ResumeMirror undoes PauseMirror.
func (a *Agent) ResumeMirror() { a.mirror.cluster.Resume() }

// RESTAddr is where the inspection interface listens; nil without one.
func (a *Agent) RESTAddr() net.Addr {
	if a.sockets.rest == nil {
		return nil
	}
	return a.sockets.rest.Addr()
}

// Close releases what New took. Run calls it.
func (a *Agent) Close() error {
	var errs []error
	if a.Attachments != nil {
		a.Attachments.Ports.Close()
	}
	listeners := []net.Listener{a.sockets.rest}
	for _, s := range a.sockets.sockets {
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
	if a.dataPlane != nil {
		a.dataPlane.retry.Stop()
	}
	if a.lock != nil {
		errs = append(errs, durable.Unlock(a.lock))
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
	if err := durable.Lock(f); err != nil {
		_ = f.Close() // nothing was written
		if !errors.Is(err, durable.ErrLocked) {
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
			return nil, fmt.Errorf("remove the stale file: %w", err)
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

// settingsTimeout is how long the host is not made known while it waits for the cluster's
// settings.
const settingsTimeout = 2 * time.Second

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
	inside.Go(func() { a.mirror.cluster.Run(inner, a.cfg.TenantLinger) })
	if a.mirror.relay != nil {
		inside.Go(func() { a.mirror.relay.Run(inner) })
	}
	inside.Go(func() { _ = a.runner.Run(inner) }) // its error is inner's end
	inside.Go(func() { a.Observer.Observe(ctx, inner) })
	inside.Go(func() { a.mirror.cluster.Guard.SavePosition(inner) })
	inside.Go(func() { a.mirror.cluster.Guard.RememberHosts(inner, a.mirror.cluster.Hosts) })
	inside.Go(func() { a.masters.Discover(inner, a.mirror.source, a.cfg.Log) })
	inside.Go(func() { a.mirror.control.Run(inner) })
	compared := make(chan struct{})
	inside.Go(func() {
		select {
		case <-ctx.Done(): // a host that cannot work is not made known
			return
		case <-compared:
		case <-time.After(settingsTimeout): // what cut the store off may be for announce to take back
		}
		if err := a.registration.announce(inner); err != nil {
			stop(err)
		}
	})
	outside.Go(func() { a.names.serveNames(ctx, a.cfg.Log, a.kick) })
	outside.Go(func() { a.mirror.way.Guard(ctx) })
	outside.Go(func() { a.mirror.way.Watch(ctx, a.bgp.fabric.LostTable, a.bgp.fabric.LostRoute) })
	outside.Go(func() { a.mirror.way.AnswerHealth(ctx) })
	outside.Go(func() { a.l2.answers.Run(ctx) })
	outside.Go(func() { a.l2.announcer.Run(ctx) })
	outside.Go(func() { a.bgp.fabric.Run(ctx) })
	outside.Go(func() { a.masters.LogWaiting(ctx, a.cfg.Log, a.mirror.cluster.NotFollowing) })
	if a.listener != nil {
		outside.Go(func() { a.listener.Run(ctx) })
	}
	if a.probers.prober != nil {
		outside.Go(func() { a.probers.prober.Run(ctx) })
	}
	if a.probers.tunnels != nil {
		outside.Go(func() { a.probers.tunnels.Run(ctx) })
	}
	outside.Go(func() {
		if err := a.compare(ctx); err != nil {
			stop(err)
			return
		}
		close(compared)
	})
	spooled := make(chan struct{})
	outside.Go(func() { a.Attachments.Run(ctx, func() { close(spooled) }) })
	<-spooled
	common := a.sockets.socketHandler(a.Runtime(), a.legacy)
	for _, s := range a.sockets.sockets {
		outside.Go(func() {
			if err := a.sockets.serveSocket(ctx, s, common); err != nil {
				stop(fmt.Errorf("serve the %s: %w", s.what, err))
			}
		})
	}
	if a.sockets.rest != nil {
		isOurs := func(name string) bool { return strings.EqualFold(name, string(a.cfg.Host)) }
		serve(a.sockets.rest, httpguard.NewLimiter(httpguard.Limits{Body: 1 << 20}).Handler(httpguard.CheckOrigin(httpguard.OriginConfig{IsOurs: isOurs}, a.Observer.Handler(a.Observer.More()))), "inspection")
	}
	a.cfg.Log.Info("netplugin is running", "host", a.cfg.Host, "vtep", a.cfg.VTEP, "driver", a.cfg.DriverName, "why", a.cfg.DriverWhy,
		"socket", a.cfg.Socket, "attachments", len(a.Attachments.Entries()))

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
	srv := transport.NewServer(h)
	srv.BaseContext = func(net.Listener) context.Context { return base }
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
	first := len(a.Attachments.Entries()) == 0 && a.cfg.FirstStart > 0
	wctx, cancel := ctx, context.CancelFunc(func() {})
	if first {
		wctx, cancel = context.WithTimeout(ctx, a.cfg.FirstStart)
	}
	g, err := a.mirror.cluster.Lookup.AwaitSettings(ctx, wctx)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return model.Errorf(model.ErrUnavailable,
			"the cluster's store does not answer: %w; if the address is wrong, give it with --etcd-endpoints or --consul-endpoints", a.mirror.cluster.NotFollowing())
	}
	if err := a.Attachments.Ports.AssignPrivate(ctx); err != nil {
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
