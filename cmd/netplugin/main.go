package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/base/flags"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/datapath/hostservices"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/dns"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/observe"
	"github.com/contiv/netplugin/v2/internal/netplugin/peerhealth"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/mesos"
	"github.com/contiv/netplugin/v2/internal/security/enrollment"
)

func main() {
	// The memory belongs to the containers, so the heap may grow by half, which
	// bench/datapath measures. Collecting the small heap of a host with few endpoints at
	// each half took a seventh of the processor time while containers start.
	daemon.PaceCollector(16 << 20)
	os.Exit(daemon.Run("netplugin", os.Stderr, func(ctx context.Context) error {
		var o options
		fs := newFlags(&o)
		if done, err := daemon.ParseFlags(fs, os.Args[1:], os.Getenv, os.Stdout); done {
			return err
		}
		if err := o.checkOnce(fs); err != nil {
			return err
		}
		if o.installCNI {
			return installCNI(o, os.Stdout)
		}
		if o.uninstall {
			err := uninstall(ctx, o, os.Stdout)
			if err == nil && o.stay {
				<-ctx.Done()
			}
			return err
		}
		if err := o.finish(ctx, fs); err != nil {
			return err
		}
		return run(ctx, o, fs, os.Stderr)
	}))
}

// configure sets what the agent takes from flags as they are.
func (o *options) configure(cfg *agent.Config) {
	cfg.Host, cfg.Control, cfg.VTEP, cfg.OwnIPv6, cfg.VXLANPort = o.hostName, o.ctrl, o.vtep, hoststack.SourceAddr6, o.vxlanPort
	cfg.DriverName, cfg.Uplinks, cfg.NoDNS = o.driver, o.uplinks, o.dns == dnsOff
	cfg.TLS, cfg.Joined, cfg.Netmasters, cfg.Token, cfg.NetworkToken = o.tls, o.joining.dir != "", o.netmaster, o.token.Source(), o.dockerToken.Source()
	cfg.FwdMode, cfg.PvtSubnet, cfg.IPForward, cfg.TakeHost = o.fwd, o.pvt, o.ipForward, o.takeHost
	cfg.ClientPins = o.clientPins()
	if o.cgroup != cgroupNone {
		cfg.Cgroup, cfg.SocketPins = o.cgroup, o.socketPins()
	}
	cfg.StateDir, cfg.Socket, cfg.RESTAddress, cfg.Version = o.stateDir, o.cniSocket, o.restAddress, daemon.Build().Version
	cfg.Probe = peerhealth.Ask(o.vtep, desired.DefaultRESTPort)
	cfg.ContainersReachControl, cfg.DebugAddress = o.reachControl, o.debug
	cfg.DebugHooks, cfg.Hook = o.debugHooks, exitAtStep(*o)
}

// firstStart is how long a host without any state waits for the store. Then it exits, so
// that a wrong address is noticed soon.
const firstStart = 15 * time.Second

func run(ctx context.Context, o options, fs *flags.Set, stderr io.Writer) (err error) {
	ring := supportbundle.NewRing(stderr, supportbundle.RingSize)
	log, closeLog, err := o.log.Open("netplugin", ring)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	daemon.ExplainAddress(log, o.unresolved, o.ctrl.String(), "ctrl-ip")
	if err := daemon.CoalesceTimers(); err != nil {
		log.Debug("timers stay exact, which costs some processor time", "error", err)
	}

	if o.remountSysctls {
		if err := remountProcSys(); err != nil {
			return err
		}
	}
	cfg := agent.Config{FromNetmasters: o.asksNetmasters(), Seeds: o.seeds}
	if cfg.FromNetmasters {
		cfg.StoreAddresses = func(context.Context) ([]string, error) { return o.storeAt, nil }
	} else {
		st, err := o.store.Open(o.tls.StoreClient, true, log)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		cfg.Store, cfg.StoreAddresses, cfg.Metrics = st, st.Addresses, st.Collectors()
	}
	socket, err := listenDocker(ctx, o, log)
	if err != nil {
		return err
	}
	if socket != nil {
		defer func() { _ = socket.Close() }() // the plugin has, once it runs
	}
	chosen, err := chooseDriver(ctx, o)
	if err != nil {
		return err
	}
	o.driver = chosen.Driver
	if err := o.checkAddresses(); err != nil {
		return err
	}
	o.warnIdle(fs, log)
	if o.joining.left != "" {
		log.Warn("this host has a certificate and does not use it: its store has no TLS, and anyone who can reach it or a netmaster controls the cluster", "certificate", o.joining.left, "remedy", "give --etcd-endpoints https://, --join and --join-token-file where netmasters run with --secure")
	}
	log.Info("the data plane is chosen", "driver", chosen.Driver, "why", chosen.Why, "since", chosen.Since)
	drv, err := openDriver(ctx, o, log)
	if err != nil {
		if chosen.fellBack() {
			err = fmt.Errorf("%w; driver %s was chosen because of this: %s", err, chosen.Driver, chosen.Why)
		}
		return err
	}
	o.warnUnsupported(fs, drv.Capabilities(), log)
	if o.cgroup == cgroupNone { // what an earlier start has pinned goes on otherwise, with the backends of then
		if err := hostservices.Remove(o.socketPins()); err != nil {
			return errors.Join(fmt.Errorf("--cgroup none: %w", err), drv.Close())
		}
	}
	defer func() { err = errors.Join(err, drv.Close()) }()

	var flowLog observe.FlowSink
	var reopen func()
	if o.flowLog != "" {
		lines, err := daemon.OpenLines(o.flowLog, o.log.SyslogFormat, "netplugin-flow-log")
		if err != nil {
			return flags.Usagef("--flow-log: %w", err)
		}
		defer func() { err = errors.Join(err, lines.Close()) }()
		flowLog, reopen = lines, lines.Reopen
	}
	upstreams, err := dns.ParseUpstreams(o.dnsUpstream)
	if err != nil {
		return flags.Usagef("--dns-upstream: %w", err)
	}
	o.configure(&cfg)
	cfg.DriverWhy, cfg.Predecessor, cfg.Driver, cfg.Log = chosen.Why, predecessor(ctx, o, log), drv, log
	cfg.FlowLog, cfg.Support, cfg.DNSUpstreams, cfg.FirstStart = flowLog, o.support(ring), upstreams, firstStart
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	if o.forwards() {
		if err := chosen.save(o.stateDir); err != nil {
			return errors.Join(err, a.Close())
		}
	}
	log.Info("netplugin starts", "version", daemon.Build().Version, "host", o.hostName, "etcd", o.store.Etcd, "netmasters", o.seeds,
		"driver", o.driver, "control", o.ctrl, "vtep", o.vtep)
	a.Handle("POST "+cni.Path, server.Handler(a.Runtime()))
	if err := a.HandleAt(ctx, filepath.Join(filepath.Dir(o.cniSocket), mesos.SocketFile), "Mesos socket", mesos.Handler(a.Runtime())); err != nil {
		return errors.Join(err, a.Close())
	}
	docker, err := openDocker(ctx, o, a, socket, log)
	if err != nil {
		return errors.Join(err, a.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		daemon.LogHangups(ctx, log, reopen)
		return nil
	})
	if o.debug != "" {
		g.Go(func() error { return daemon.ServeDebug(ctx, o.debug, o.tls, log) })
	}
	if docker != nil {
		g.Go(func() error { return docker.Run(ctx) })
	}
	g.Go(func() error {
		o.certs.Watch(ctx, log)
		return nil
	})
	if o.joining.dir != "" {
		g.Go(func() error {
			cfg := o.enrolment(o.joining.dir)
			cfg.Netmasters = a.Netmasters
			return enrollment.Keep(ctx, cfg, o.joining.follow(a.SetSeeds), log)
		})
	}
	g.Go(func() error { return a.Run(ctx) })
	g.Go(func() error {
		daemon.Supervise(ctx, log, func(ctx context.Context) error { return servesRuntimes(ctx, o.cniSocket) }, func(ctx context.Context) error {
			a.Observer.State() // a deadlock here stops the notifications to systemd, which then restarts netplugin
			return servesRuntimes(ctx, o.cniSocket)
		})
		return nil
	})
	return g.Wait()
}

// servesRuntimes reports whether containers' runtimes are answered, be it that nothing
// can be attached now.
func servesRuntimes(ctx context.Context, socket string) error {
	if err := (attach.Client{Socket: socket}).Ready(ctx); errors.Is(err, attach.ErrUnreachable) {
		return err
	}
	return nil
}

// exitAtStep lets a test kill this process at a step of an attachment, as kill -9
// would: $CONTIV_NETPLUGIN_TEST_KILL names the step, and --debug-hooks allows it.
func exitAtStep(o options) func(string) error {
	at := os.Getenv(envPrefix + "TEST_KILL")
	if !o.debugHooks || at == "" {
		return nil
	}
	return func(step string) error {
		if step != at {
			return nil
		}
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill at step %s: %w", step, err)
		}
		select {} // the signal is on its way
	}
}
