package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/etcd"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// host is an agent with a data plane in memory.
type host struct {
	*agent.Agent
	t    *testing.T
	name model.HostName
	log  testenv.Log
}

// startHost starts an agent that reads the store by itself and finds netmasters
// by the registry. stop ends it in order.
func startHost(t *testing.T, endpoint string, i int) (h *host, stop func()) {
	t.Helper()
	h = &host{t: t, name: model.HostName(fmt.Sprintf("h%d", i))}
	log := slog.New(slog.NewTextHandler(&h.log, nil))
	st, err := etcd.New(etcd.Config{Endpoints: []string{endpoint}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	drv := reference.New()
	drv.Interfaces(func(name string) bool { _, err := net.InterfaceByName(name); return err == nil })
	addr, dir := netip.AddrFrom4([4]byte{10, 9, 0, byte(i)}), t.TempDir()
	h.Agent, err = agent.New(t.Context(), agent.Config{
		Host: h.name, Control: addr, VTEP: addr, DriverName: "fake", Driver: drv, Store: st, Log: log,
		StateDir: dir, Socket: filepath.Join(dir, "s"), RESTAddress: "127.0.0.1:0", UnderlayMTU: 1500, NoDNS: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("%s: Run: %v", h.name, err)
		}
		st.Close()
		if t.Failed() {
			t.Logf("%s says:\n%s", h.name, h.log.String())
		}
	})
	t.Cleanup(stop)
	return h, stop
}

func containerKey(n int) attach.Key { return attach.Key{Container: fmt.Sprint("c", n), IfName: "eth0"} }

// attach attaches a container, which must work at once.
func (h *host) attach(n int) {
	h.t.Helper()
	r := attach.Request{Key: containerKey(n), Tenant: "blue", Network: "n", Source: attach.SourceDocker, Parked: true}
	if _, err := h.Attachments.Attach(h.t.Context(), r); err != nil {
		h.t.Errorf("%s: %v", h.name, err)
	}
}

// losses notes whatever the store loses of hosts and their endpoints.
type losses struct {
	mu   sync.Mutex
	lost []string
}

func (l *losses) follow(ctx context.Context, st store.Reader) error {
	scopes := []string{cluster.AgentScope, tables.HostLeasesScope, tables.HostsScope, tables.EndpointsOf(model.NetworkKey{Tenant: "blue", Name: "n"})}
	err := st.Mirror(ctx, scopes, func(b store.Batch) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range b.Events {
			if e.Deleted() {
				l.lost = append(l.lost, e.KV.Key)
			}
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the end is why it failed
	}
	return err
}

func (l *losses) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lost)
}

// TestAgentsOutliveChangesOfTheLeader: three netmasters, and agents that only read the store.
// When the one that leads is killed, containers are attached by the others before
// anybody leads; when all are killed nothing about a host expires, a container ends
// and only a new one has to wait; when they come back, elsewhere, nothing is lost,
// and what was owed is released.
func TestAgentsOutliveChangesOfTheLeader(t *testing.T) {
	testenv.Need(t)
	server := startEtcd(t, "127.0.0.1:0", t.TempDir())
	st, err := etcd.New(etcd.Config{Endpoints: []string{server.Endpoint()}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	startThree := func() (three []*process) {
		for range 3 {
			p := start(t, nil, "--etcd-endpoints", server.Endpoint())
			three = append(three, p)
		}
		for _, p := range three {
			p.ready()
		}
		return three
	}
	leads := func(of []*process) (leader *process) {
		t.Helper()
		of[0].until("or another leads", func() bool {
			for _, p := range of {
				if i, err := p.Info(t.Context()); err == nil && i.CurrentState == roleLeader && i.LeaderIP == p.api {
					leader = p
				}
			}
			return leader != nil
		})
		return leader
	}
	kill := func(p *process) {
		t.Helper()
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.done
	}
	masters := startThree()
	leader := leads(masters)
	_, err1 := leader.Tenants().Create(t.Context(), api.Tenant{TenantName: "blue"})
	_, err2 := leader.Networks().Create(t.Context(), api.Network{TenantName: "blue", NetworkName: "n", Encap: "vxlan", Subnet: "10.1.1.0/24", Gateway: "10.1.1.254"})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	var hosts []*host
	var stops []func()
	for i := range 2 {
		h, stop := startHost(t, server.Endpoint(), i+1)
		hosts, stops = append(hosts, h), append(stops, stop)
	}
	each := func(do func(h *host)) {
		var all sync.WaitGroup
		for _, h := range hosts {
			all.Go(func() { do(h) })
		}
		all.Wait()
	}
	// stands waits until a netmaster says that both hosts live, with so many endpoints.
	stands := func(p *process, endpoints int) {
		t.Helper()
		p.until(fmt.Sprintf("has both hosts alive with %d endpoints each", endpoints), func() bool {
			list, err := p.Hosts(t.Context())
			return err == nil && len(list) == 2 && !slices.ContainsFunc(list, func(h api.Host) bool {
				return h.State != api.HostAlive || h.Endpoints != endpoints
			})
		})
	}
	each(func(h *host) { h.attach(0) })
	stands(leader, 1)
	var gone losses
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		if err := gone.follow(ctx, st); err != nil {
			t.Error(err)
		}
	})
	defer following.Wait()
	defer cancel()

	kill(leader)
	masters = slices.DeleteFunc(masters, func(p *process) bool { return p == leader })
	each(func(h *host) { h.attach(1) })
	leader = leads(masters)
	each(func(h *host) { h.attach(2) })
	stands(leader, 3)

	for _, p := range masters {
		kill(p)
	}
	each(func(h *host) {
		r := attach.Request{Key: containerKey(3), Tenant: "blue", Network: "n", Source: attach.SourceDocker, Parked: true}
		if _, err := h.Attachments.Attach(t.Context(), r); !errors.Is(err, model.ErrUnavailable) {
			t.Errorf("%s attaches without a netmaster: %v", h.name, err)
		}
		if err := h.Attachments.Detach(t.Context(), attach.DetachRequest{Key: containerKey(0)}); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	})
	none := make(chan struct{})
	following.Go(func() {
		_ = cluster.WatchServices(ctx, st, cluster.ServiceMaster, func(list []cluster.Service) error {
			if len(list) == 0 {
				close(none)
				return errors.New("that is all")
			}
			return nil
		})
	})
	select { // until the netmasters' own registrations, which have leases, are gone
	case <-none:
	case <-time.After(patience):
		t.Fatal("netmasters that were killed stay registered")
	}
	if lost := gone.all(); len(lost) > 0 {
		t.Errorf("with no netmaster there the store loses %q", lost)
	}

	masters = startThree()
	each(func(h *host) { h.attach(3) })
	leader = leads(masters)
	stands(leader, 3)
	cancel()
	following.Wait()
	for _, key := range gone.all() {
		if host, n := endpointOf(key); n != 0 {
			t.Errorf("lost: %s (host %s, container %d)", key, host, n)
		}
	}
	if len(gone.all()) != len(hosts) {
		t.Errorf("the store has lost %q, want the endpoints of the containers that ended", gone.all())
	}
	each(func(h *host) {
		for n := 1; n <= 3; n++ {
			if err := h.Attachments.Detach(t.Context(), attach.DetachRequest{Key: containerKey(n)}); err != nil {
				t.Errorf("%s: %v", h.name, err)
			}
		}
	})
	stands(leader, 0)
	for _, stop := range stops {
		stop()
	}
	for _, p := range masters {
		p.stop()
	}
}

// endpointOf reads which container of which host an endpoint's key is of; -1 = it is
// no endpoint's.
func endpointOf(key string) (host string, n int) {
	id := filepath.Base(key)
	if _, err := fmt.Sscanf(id, "cni:h%1s:c%d:eth0", &host, &n); err != nil {
		return "", -1
	}
	return host, n
}
