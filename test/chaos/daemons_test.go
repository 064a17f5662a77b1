//go:build integration

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// The words of mistake.needs: "agent@" is a host's netplugin, "plane@" its data
// plane, "cable" the hosts' links, one mistake at a time; "master", "store"; "all"
// is everything.

// etcdProcess says that a mistake is made where the store is a process of its own.
const etcdProcess = "etcd"

// switchDies is what docs/design/ovs-pipeline.md grants the death of the switch in
// user space, with its start.
var switchDies = cost{sameHost: 5 * time.Second, acrossHosts: 5 * time.Second, why: "the datapath in user space dies with its process"}

// databaseDies is what the page grants the death of its database, with its start.
var databaseDies = cost{sameHost: 3 * time.Second, acrossHosts: 3 * time.Second, why: "without its database the switch in user space forwards nothing"}

func daemonMistakes() []*mistake {
	agent := []string{"agent@"}
	plane := []string{"agent@", "plane@"}
	return []*mistake{
		{name: "netplugin restarted", needs: agent, do: restartAgent},
		{name: "netplugin killed and started", needs: agent, do: killAgent},
		{name: "netplugin killed, and later started", needs: plane, statusWords: []string{"is away"}, do: killAgentFor},
		{name: "netplugin stopped (SIGSTOP)", needs: plane, statusWords: []string{"is away"}, do: pause("netplugin")},
		{name: "netplugin gets SIGHUP", needs: agent, do: hup("netplugin")},
		{name: "netmaster killed, and later started", needs: []string{"master"}, statusWords: []string{"netmaster"}, do: killMasterFor},
		{name: "netmaster restarted", needs: []string{"master"}, do: restartMaster},
		{name: "netmaster stopped (SIGSTOP)", needs: []string{"master"}, statusWords: []string{"netmaster"}, do: pause("netmaster")},
		{name: "netmaster gets SIGHUP", needs: []string{"master"}, do: hup("netmaster")},
		{name: "etcd killed, and later started", store: etcdProcess, needs: []string{"store"}, statusWords: []string{"store"}, do: killStoreFor},
		{name: "etcd stopped (SIGSTOP)", store: etcdProcess, needs: []string{"store"}, statusWords: []string{"store"}, do: pause("etcd")},
		{name: "everything killed, started in any order", needs: []string{"all"}, do: killAll},
		{name: "ovs-vswitchd killed and started", only: testcluster.DriverOVS, needs: plane, costs: switchDies, do: restartSwitch},
		{name: "ovsdb-server killed and started", only: testcluster.DriverOVS, needs: plane, costs: databaseDies, do: restartDatabase},
	}
}

func restartAgent(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	if err := h.Agent().Stop(10 * time.Second); err != nil {
		return nil, err
	}
	return nil, w.startAgent(ctx, h)
}

func killAgent(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return nil, w.restartAgent(ctx, h)
}

// endDaemon kills a daemon until it is started again.
func (w *world) endDaemon(name string, start func(context.Context) error) (undo, error) {
	w.down[name] = true
	return func(ctx context.Context) error {
		delete(w.down, name)
		return start(ctx)
	}, w.Process(name).Kill()
}

// startDaemon starts a daemon that has ended.
func (w *world) startDaemon(ctx context.Context, name string) error {
	switch name {
	case "netmaster":
		return w.startMaster(ctx)
	case "etcd":
		return w.Store.StartEtcd(ctx)
	}
	host, daemon, _ := strings.Cut(name, "-")
	h, err := w.Host(host)
	if err != nil {
		return err
	}
	switch daemon {
	case "netplugin":
		return w.startAgent(ctx, h)
	case "ovsdb-server":
		return h.Switch.StartOvsdb(ctx)
	case "ovs-vswitchd":
		return h.Switch.StartVswitchd(ctx)
	}
	return fmt.Errorf("nobody knows how to start %s", name)
}

func killAgentFor(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return w.endDaemon(h.Name+"-netplugin", func(ctx context.Context) error { return w.startAgent(ctx, h) })
}

func killMasterFor(_ context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	return w.endDaemon("netmaster", w.startMaster)
}

func killStoreFor(_ context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	return w.endDaemon("etcd", func(ctx context.Context) error { return errors.Join(w.Store.StartEtcd(ctx), w.ready(ctx)) })
}

// startMaster starts netmaster, which answers when it has its store.
func (w *world) startMaster(ctx context.Context) error {
	if w.down["etcd"] {
		_, err := w.Masters.LaunchMaster(nil)
		return err
	}
	return errors.Join(w.Masters.StartMaster(ctx), w.ready(ctx))
}

// ready waits until netmaster and the agents that run can do their work.
func (w *world) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if w.down["etcd"] {
		return nil
	}
	if !w.down["netmaster"] {
		if err := testcluster.Until(ctx, "netmaster to answer", func(ctx context.Context) error { return w.netctl(ctx, "tenant ls") }); err != nil {
			return err
		}
	}
	for _, h := range w.Hosts() {
		if !w.down[h.Name+"-netplugin"] && !w.down["netmaster"] {
			if err := testcluster.Until(ctx, h.Name+" to be ready", h.Status); err != nil {
				return err
			}
		}
	}
	return nil
}

// startAgent starts a host's netplugin and waits until it can add containers,
// unless what it needs for that is away.
func (w *world) startAgent(ctx context.Context, h *testcluster.Host) error {
	p, err := h.LaunchAgent()
	if err != nil || w.down["netmaster"] || w.down["etcd"] {
		return err
	}
	return h.WaitAgent(ctx, p)
}

func (w *world) restartAgent(ctx context.Context, h *testcluster.Host) error {
	if err := h.KillAgent(); err != nil {
		return err
	}
	return w.startAgent(ctx, h)
}

func restartMaster(ctx context.Context, w *world, _ *testcluster.Host, _ *rand.Rand) (undo, error) {
	if err := w.Process("netmaster").Stop(10 * time.Second); err != nil {
		return nil, err
	}
	return nil, w.startMaster(ctx)
}

func daemonOf(w *world, h *testcluster.Host, name string) *testcluster.Process {
	if h != nil {
		name = h.Name + "-" + name
	}
	return w.Process(name)
}

func pause(name string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(_ context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		p := daemonOf(w, h, name)
		w.down[p.Name] = true
		return func(ctx context.Context) error {
			delete(w.down, p.Name)
			return errors.Join(p.Resume(), w.ready(ctx))
		}, p.Pause()
	}
}

func hup(name string) func(context.Context, *world, *testcluster.Host, *rand.Rand) (undo, error) {
	return func(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
		if err := daemonOf(w, h, name).Signal(syscall.SIGHUP); err != nil {
			return nil, err
		}
		return nil, w.flow(ctx, 20) // judge looks whether it lives
	}
}

func killAll(ctx context.Context, w *world, _ *testcluster.Host, r *rand.Rand) (undo, error) {
	names := []string{"netmaster", "h1-netplugin", "h2-netplugin", "h3-netplugin"}
	if !w.Config().Embedded {
		names = append(names, "etcd")
	}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, n := range names {
		if err := w.Process(n).Kill(); err != nil {
			return nil, err
		}
	}
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var g errgroup.Group
	for _, n := range names { // each waits for what it needs
		g.Go(func() error { return w.startDaemon(ctx, n) })
		if err := w.flow(ctx, r.IntN(20)); err != nil {
			return nil, err
		}
	}
	return nil, g.Wait()
}

func restartSwitch(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return nil, errors.Join(h.Switch.RestartVswitchd(ctx), w.recovers(ctx), w.ready(ctx))
}

func restartDatabase(ctx context.Context, w *world, h *testcluster.Host, _ *rand.Rand) (undo, error) {
	return nil, errors.Join(w.Process(h.Name+"-ovsdb-server").Kill(), h.Switch.StartOvsdb(ctx), w.ready(ctx))
}

// recovers waits until both pings are answered again, but for what a mistake
// that lasts cuts off.
func (w *world) recovers(ctx context.Context) error {
	begin := time.Now()
	return testcluster.Until(ctx, "pings to be answered again", func(context.Context) error {
		for name, p := range w.pings {
			if (!w.cut || name != "far") && p.Between(begin, time.Now()).Received < 10 {
				return fmt.Errorf("%s are not", name)
			}
		}
		return nil
	})
}
