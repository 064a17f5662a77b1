package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/daemon/supportbundle"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access/token"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netmaster/kubernetes/controller"
	"github.com/contiv/netplugin/v2/internal/netmaster/membership"
	"github.com/contiv/netplugin/v2/internal/netplugin/hoststack"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/docker"
	"github.com/contiv/netplugin/v2/internal/security/transport"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// sweepEvery is how often the leader collects garbage.
const sweepEvery = time.Minute

// readyTimeout bounds what /readyz waits for the store.
const readyTimeout = 3 * time.Second

// run is netmaster with validated settings, until ctx ends.
func run(ctx context.Context, o options, stderr io.Writer) (err error) {
	o.ring = supportbundle.NewRing(stderr, supportbundle.RingSize)
	log, closeLog, err := o.log.Open("netmaster", o.ring)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	if o.restore != "" {
		return restore(ctx, o, log)
	}
	if o.joining.recover {
		return recoverCluster(ctx, o, log)
	}
	b := daemon.Build()
	log.Info("starting", "version", b.Version, "commit", b.Commit, "mode", o.mode)
	o.explain(log)
	if err := daemon.CoalesceTimers(); err != nil {
		log.Debug("timers stay exact, which costs some processor time", "error", err)
	}

	listeners, st, closeStore, server, err := openAll(ctx, &o, log)
	if err != nil {
		return err
	}
	defer func() {
		for _, ln := range listeners {
			_ = ln.Close() // closed already when it was served
		}
	}()
	defer func() { err = errors.Join(err, closeStore()) }()
	if server == nil {
		return serve(ctx, o, st, nil, listeners, log)
	}
	// When the store has died under it, nothing can end in order any more: each
	// part would wait for the store.
	done := make(chan error, 1)
	go func() { done <- serve(ctx, o, st, server, listeners, log) }()
	broken := make(chan error, 1)
	go func() { broken <- server.Wait(ctx) }()
	select {
	case err := <-done:
		return err
	case err := <-broken:
		if err == nil { // ctx has ended
			return <-done
		}
		return fmt.Errorf("the embedded etcd has failed: %w", err)
	}
}

// explain tells at start what an operator should know.
func (o *options) explain(log *slog.Logger) {
	for _, address := range []string{o.external, o.internal, o.agent} {
		if host, _, err := net.SplitHostPort(address); err == nil && !isLoopback(host) && o.token == nil && o.tls.APIServer == nil && !o.secure {
			log.Warn("the REST API has no authentication and is served beyond this host: anyone who can reach it controls the cluster",
				"address", address, "remedy", "have it ask for certificates with --tls-dir or a token with --token-file, or bind it to a management network with --external-address")
			break
		}
	}
	daemon.ExplainAddress(log, o.unresolved, o.internal, "internal-address")
	if o.loopback != nil {
		log.Warn("this host has no address that others could reach, so this netmaster can be found on this host only",
			"address", o.internal, "why", o.loopback, "remedy", "give --internal-address, or the host an address and start again")
	}
	if host, _, err := net.SplitHostPort(o.etcdListen); err == nil && o.certs.Own != nil && o.certs.Store == nil && !o.store.External() && !isLoopback(host) {
		log.Warn("the embedded store is served beyond this host without TLS: anyone who can reach it controls the cluster, whatever authentication the REST API has",
			"address", o.etcdListen, "remedy", "give --store-tls-dir too, and https:// in the agents' --etcd-endpoints")
	}
	if o.acceptPlain {
		log.Warn("clients without TLS are accepted at the REST API and the store, and control the cluster: start without --accept-plain when all hosts have joined", "rest", o.internal, "store", o.plainStore)
	}
	o.explainAccess(log)
	o.warnIdle(log)
}

// controlPlaneAddresses are the addresses of this netmaster and of its store, as far as flags name
// them by address, with whose each is.
func (o *options) controlPlaneAddresses() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	add := func(host, whose string) {
		if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() && !a.IsLoopback() {
			out[a.Unmap()] = whose
		}
	}
	for _, h := range hostsOf(o.external, o.internal, o.agent) {
		add(h, "is the address of a netmaster")
	}
	for _, text := range slices.Concat(o.store.Etcd, o.store.Consul) {
		if u, err := url.Parse(text); err == nil {
			add(u.Hostname(), "is the address of the store")
		}
	}
	return out
}

// sameHost reports whether agents are to find this netmaster at the same IP as others.
func (o *options) sameHost() bool {
	a, _, err1 := net.SplitHostPort(o.agent)
	b, _, err2 := net.SplitHostPort(o.internal)
	return err1 == nil && err2 == nil && a == b
}

func (o *options) restoreConfig(log *slog.Logger) membership.RestoreConfig {
	return membership.RestoreConfig{File: o.restore, DataDir: o.dataDir, Logger: log, Now: time.Now(), KeepTokens: o.keepTokens, NewAuthorities: o.newAuth}
}

// restore makes the data directory of a backup.
func restore(ctx context.Context, o options, log *slog.Logger) error {
	r, err := membership.Restore(ctx, o.restoreConfig(log))
	if err != nil {
		return err
	}
	log.Info("the store is restored; start netmaster on it, and hosts restore their endpoints that the backup lacks",
		"backup", o.restore, "data", o.dataDir, "store", r.String(), "revision", int64(r.Revision), "former", r.Kept, "authoritiesKept", r.Authorities)
	if r.Tokens > 0 {
		log.Warn("the tokens in the backup are no longer valid, since some may have been revoked after it: make new ones with a certificate of a cluster-admin, or restore with --keep-tokens", "tokens", r.Tokens)
	}
	return nil
}

// listen opens the addresses that the API is served on: the external one, the
// internal one unless the external covers it, and the agents'.
func listen(ctx context.Context, o options, log *slog.Logger) (lns []net.Listener, err error) {
	want := []struct{ what, addr, flag string }{
		{"the REST API", o.external, "--external-address"},
		{"other netmasters", o.internal, "--internal-address"},
		{"agents", o.agent, "--agent-address"},
	}
	for i, w := range want {
		if i == 1 && covers(o.external, w.addr) {
			continue
		}
		more, err := o.listenAt(ctx, w.addr, log)
		switch {
		case err == nil:
			lns = append(lns, more...)
			continue
		case errors.Is(err, unix.EADDRINUSE):
			err = fmt.Errorf("listen for %s on %s: another process has the address; stop it, or give another with %s", w.what, w.addr, w.flag)
		case errors.Is(err, unix.EADDRNOTAVAIL):
			if w.addr == o.agent && o.sameHost() { // from where it was taken
				w.flag = "--internal-address, or " + w.flag
			}
			err = fmt.Errorf("listen for %s on %s: this host does not have the address; give one that it has with %s", w.what, w.addr, w.flag)
		default:
			err = fmt.Errorf("listen for %s on %s (%s): %w", w.what, w.addr, w.flag, err)
		}
		for _, ln := range lns {
			_ = ln.Close() // the first error tells more
		}
		return nil, err
	}
	return lns, nil
}

// listening is all that this process listens on.
func (o options) listening() []string {
	at := []string{o.external, o.internal, o.agent}
	if o.debug != "" {
		at = append(at, o.debug)
	}
	switch {
	case !o.store.External():
		at = append(append(at, o.etcdListen), o.joining.listening()...)
	case o.secure:
		at = append(at, o.joining.joinListen)
	}
	return at
}

// covers reports whether a listener on a also serves b.
func covers(a, b string) bool {
	ha, pa, errA := net.SplitHostPort(a)
	hb, pb, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || pa != pb {
		return false
	}
	if ha == "" || ha == hb {
		return true
	}
	ip, err := netip.ParseAddr(ha)
	return err == nil && ip.IsUnspecified()
}

// serve runs the parts and ends them in order: requests first, then this
// netmaster's part in the cluster, then the view of the store.
func serve(ctx context.Context, o options, st store.Store, server *membership.Member, listeners []net.Listener, log *slog.Logger) (failed error) {
	initial, err := model.Check(o.initial())
	if err != nil {
		return err
	}
	ctrl := control.New(st, control.Options{Log: log, Initial: initial, Surroundings: hoststack.Lifelines})
	ctrl.Kubernetes.Reserve(o.controlPlaneAddresses())
	var swarm *docker.Swarm
	if o.engine != "" {
		var err error
		if swarm, err = docker.NewSwarm(o.name, o.engine, intent{ctrl}, log); err != nil {
			return err
		}
	}
	k8s, err := newKubernetes(o, ctrl, log)
	if err != nil {
		return err
	}
	watch, fabric := ctrl.Hosts.NewHostWatch(), o.aci.controller(ctrl, log)
	watch.OnEvent = k8s.hostEvent
	m := &member{
		store: st, address: o.internal, services: []string{o.internal, o.agent}, scheme: o.scheme(), both: o.acceptPlain, listen: o.listening(),
		agents: ctrl.Heartbeats, client: o.tls.APIClient, token: o.token.Source(), log: log,
		lead: func(ctx context.Context, term store.Fence) error {
			leader := control.Leader(term)
			if swarm != nil {
				var running sync.WaitGroup
				running.Go(func() { swarm.Run(ctx) })
				defer running.Wait()
			}
			ctx, end := context.WithCancel(ctx)
			var telling sync.WaitGroup
			defer telling.Wait()
			defer end()
			telling.Go(func() { watch.ReportEvents(ctx) })
			telling.Go(func() {
				if err := ctrl.HostLeases.ExpireHosts(ctx, leader); err != nil {
					log.Debug("another netmaster detects hosts that are away", "error", err)
				}
			})
			telling.Go(func() {
				if err := ctrl.Hosts.CountAwayTime(ctx, leader, watch, o.graceTime()); err != nil {
					log.Debug("another netmaster measures how long hosts are away", "error", err)
				}
			})
			telling.Go(func() {
				if err := ctrl.LabelFilter.FollowLabelFilter(ctx, leader); err != nil {
					log.Debug("another netmaster applies the label filter to endpoints' identities", "error", err)
				}
			})
			telling.Go(func() {
				if err := ctrl.Tenants.GiveRouters(ctx, leader); err != nil {
					log.Debug("another netmaster gives tenants their routers", "error", err)
				}
			})
			telling.Go(func() {
				if err := ctrl.Pending.EndPending(ctx, leader, time.Second); err != nil {
					log.Debug("another netmaster reverts unconfirmed changes", "error", err)
				}
			})
			telling.Go(func() { ctrl.ReportAssertions(ctx) })
			telling.Go(func() { leadFabric(ctx, fabric, term, log) })
			telling.Go(func() { ctrl.Networks.IndexInfra(ctx, leader) })
			telling.Go(func() {
				if err := token.NewStore(st).RecordTenants(ctx); err != nil && ctx.Err() == nil {
					log.Warn("tokens of an earlier version are not bound to their tenants yet; each is when it is used", "error", err)
				}
			})
			telling.Go(func() { k8s.lead(ctx, term, log) })
			if err := ctrl.Repair.Sweep(ctx, leader, sweepEvery); !errors.Is(err, store.ErrFenced) {
				return err
			}
			return nil // another leads already; stand again
		},
	}
	if server != nil && !o.store.External() {
		m.disk, m.ttl = server.Health.Problem, cluster.MemberTTL
	}
	b := daemon.Build()
	metrics, err := m.metrics()
	if err != nil {
		return err
	}
	if server != nil {
		for _, c := range server.Collectors() {
			if err := metrics.Register(c); err != nil {
				return fmt.Errorf("register metrics: %w", err)
			}
		}
	}
	if err := metrics.Register(fabric); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	if k8s != nil {
		if err := metrics.Register(k8s); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	var pods apiserver.Pods
	var manifests apiserver.Manifests
	if k8s != nil {
		pods, manifests = k8s.syncer, controller.Planner{Policies: k8s.syncer, Services: k8s.services}
	}
	gate, err := o.newAPIAccess(st, log)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, gate.close()) }()
	handler, err := apiserver.New(apiserver.Config{
		Support: o.support(o.ring, server), HostKeys: hostKeys(server), Peer: m.askPeer,
		Pods: pods, Manifests: manifests, Members: membersOf(server, o, ctrl).api(), Authenticate: gate.authenticate, Audit: gate.recorder(), Tokens: gate.tokensOf(),
		Watch: watch, EvictAfter: o.graceTime(), Address: o.deliverTo(), Stopping: ctx.Done(),
		Control: ctrl, Cluster: clusterAPI{m, ctrl, k8s, o.token, gate.audit, gate.distrust}, Mode: o.mode, Log: log, Registry: metrics, Hosts: o.hosts, LegacyErrors: o.legacy,
		Version: api.Version{Version: b.Version, GitCommit: b.Commit, BuildTime: b.Time},
	})
	if err != nil {
		return err
	}
	// Each stage outlives the one that needs it.
	all, gctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		daemon.LogHangups(gctx, log, nil)
		return nil
	})
	viewCtx, endView := context.WithCancel(context.WithoutCancel(ctx))
	defer endView()
	memberCtx, endMember := context.WithCancel(context.WithoutCancel(ctx))
	defer endMember()

	viewDone, memberDone := make(chan struct{}), make(chan struct{})
	all.Go(func() error {
		defer close(viewDone)
		return ctrl.Run(viewCtx)
	})
	all.Go(func() error { return watch.Run(gctx) })
	if o.secure {
		all.Go(func() error { return membersOf(server, o, ctrl).logCertificateProblems(gctx, log) })
	}
	all.Go(func() error {
		o.certs.Watch(gctx, log)
		return nil
	})
	all.Go(func() error { return ignoreCanceled(gctx, k8s.checkCluster(gctx)) })
	all.Go(func() error { return ignoreCanceled(gctx, k8s.run(gctx)) })
	all.Go(func() error {
		defer close(memberDone)
		return ignoreCanceled(memberCtx, m.run(memberCtx))
	})
	all.Go(func() error { return ignoreCanceled(gctx, o.warnSettingsDiffer(gctx, ctrl, log)) })
	all.Go(func() error { return ignoreCanceled(gctx, o.makePodNetwork(gctx, ctrl, log)) })
	web, wctx := errgroup.WithContext(gctx)
	for _, ln := range listeners {
		log.Info("serving", "address", ln.Addr().String())
		web.Go(func() error { return daemon.ServeTracking(wctx, ln, gate.limit.Handler(handler), log, gate.distrust) })
	}
	web.Go(func() error {
		at := transport.Scheme(o.tls.APIServer) + "://" + listeners[0].Addr().String()
		self := o.self()
		daemon.Supervise(wctx, log,
			func(ctx context.Context) error { return ask(ctx, self, at+"/readyz") },
			func(ctx context.Context) error { return ask(ctx, self, at+"/healthz") })
		return nil
	})
	if o.debug != "" {
		web.Go(func() error { return daemon.ServeDebug(wctx, o.debug, o.tls, log) })
	}
	all.Go(func() error {
		err := web.Wait() // returns when gctx has ended and requests are done
		log.Info("stopping")
		if server != nil {
			server.TransferLeadership(memberCtx)
		}
		endMember()
		<-memberDone
		endView()
		<-viewDone
		return err
	})
	return all.Wait()
}

// deliverTo is where agents deliver what a monitor asks for: agents of versions
// that know no scheme read an address.
func (o *options) deliverTo() string {
	if o.scheme() == transport.HTTP {
		return o.internal
	}
	return transport.HTTPS + "://" + o.internal
}

// self is the client for a look at this process's own API.
func (o *options) self() *http.Client {
	host, _, _ := net.SplitHostPort(o.internal) // finish has made it of two parts
	return transport.OwnClient(o.tls.APIClient, host, 2*readyTimeout)
}

// ask fails unless the URL answers 200.
func ask(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(strings.Join(strings.Fields(string(text)), " "))
	}
	return err
}

// ignoreCanceled drops the error of what was told to end.
func ignoreCanceled(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end is why it failed
	}
	return err
}

// warnSettingsDiffer warns about flags that contradict the cluster's settings, which they
// would only have set on a new cluster (known fault 6: 1.x reset the settings
// at every start).
func (o *options) warnSettingsDiffer(ctx context.Context, ctrl *control.Controller, log *slog.Logger) error {
	var v *control.View
	err := retry(ctx, log, "reading the cluster's settings", func() (err error) {
		v, err = ctrl.View(ctx)
		return err
	})
	if err != nil {
		return err
	}
	g, ok := v.Settings.Global()
	if !ok {
		return nil
	}
	if o.fwdMode != "" && o.fwdMode != string(g.FwdMode) {
		log.Warn("--fwdmode contradicts the cluster's forwarding mode, which stays",
			"flag", o.fwdMode, "cluster", string(g.FwdMode), "remedy", "netctl global set --fwd-mode "+o.fwdMode)
	}
	if o.givenInfra && o.infra != string(g.Infra) {
		log.Warn("--infra contradicts the cluster's infrastructure type, which stays",
			"flag", o.infra, "cluster", string(g.Infra), "remedy", "netctl global set --fabric-mode "+o.infra)
	}
	return nil
}
