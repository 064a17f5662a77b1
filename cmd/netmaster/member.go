package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/daemon"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// The roles that the service registry and /info show.
const (
	roleLeader   = "leader"
	roleFollower = "follower"
)

// member is this netmaster's part in the cluster: its entries in the service
// registry and its candidacy. It answers /info.
type member struct {
	store    store.Store
	address  string   // ip:port of this netmaster's API, the lock's value
	services []string // ip:port to register "netmaster" and "netmaster.rpc" with
	scheme   string   // http or https: how services are asked
	both     bool     // they are asked by https too
	listen   []string // ip:port that this process listens on, all of them
	lead     func(ctx context.Context, term store.Fence) error
	ttl      time.Duration // how long the leader's lock outlives it; 0 = cluster.LeaderTTL
	agents   agents
	client   *tls.Config   // to other netmasters
	token    func() string // shown to them; nil = none
	log      *slog.Logger
	disk     func() string // what is wrong with the embedded store's disk, "" = nothing; nil = the store is elsewhere
	leading  atomic.Bool
	changes  atomic.Int64 // how often leading has changed

	mu         sync.Mutex
	lastLogged map[string]time.Time // when trouble was logged last, by what was tried
}

// agents are those whom this netmaster hears of.
type agents interface {
	TakeUnreported() []model.HostName
	Requeue([]model.HostName)
	SetLeaderLost(why error)
}

// heartbeatInterval is how often the leader learns which agents have reported: they report every
// three seconds, and count as away after cluster.ServiceTTL.
const heartbeatInterval = time.Second

// deafAfter is for how long the leader may not be reached before agents are sent
// to another netmaster.
const deafAfter = 4 * time.Second

// sendHeartbeatsToLeader tells the netmaster that leads which agents this one hears of, until
// ctx ends.
func (m *member) sendHeartbeatsToLeader(ctx context.Context) {
	fails := m.storeErrorLogger("telling the leader which hosts are alive")
	var since time.Time // when it was not reached for the first time
	for waiting.Pause(ctx, heartbeatInterval) == nil {
		names := m.agents.TakeUnreported()
		if m.leading.Load() { // this one hears for itself
			since = time.Time{}
			m.agents.SetLeaderLost(nil)
			continue
		}
		if len(names) == 0 && since.IsZero() {
			continue
		}
		leader, err := cluster.Leader(ctx, m.store, cluster.LeaderKey)
		switch {
		case err != nil: // no leader, or no store: none is counted
		case leader == m.address: // it leads in a moment
		default:
			if err = m.sendHeartbeats(ctx, leader, names); err == nil {
				since = time.Time{}
				m.agents.SetLeaderLost(nil)
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) > deafAfter { // not while another takes over
				fails(err)
				m.agents.SetLeaderLost(err)
			}
		}
		m.agents.Requeue(names)
	}
}

func (m *member) sendHeartbeats(ctx context.Context, leader string, names []model.HostName) error {
	client, err := api.NewClient(m.urlOf(ctx, leader), api.WithTimeout(readyTimeout), api.WithTLS(m.client), api.WithToken(m.token))
	if err != nil {
		return err
	}
	defer client.Close()
	heard := api.HostHeartbeats{Hosts: []string{}}
	for _, name := range names {
		heard.Hosts = append(heard.Hosts, string(name))
	}
	return client.Do(ctx, http.MethodPost, "/plugin/hostsHeard", heard, nil)
}

// run registers this netmaster and stands for election until ctx ends; it
// waits for the store as long as that takes.
func (m *member) run(ctx context.Context) error {
	var entries []*cluster.Registration
	defer func() {
		for _, r := range entries {
			if err := r.Close(); err != nil {
				m.log.Warn("leaving the service registry failed; the entry expires by itself", "error", err)
			}
		}
	}()
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	var listening sync.WaitGroup
	listening.Go(func() {
		cluster.KeepListening(ctx, m.store, cluster.Service{Role: "netmaster", Version: daemon.Build().Version, Hostname: host},
			m.listen, addressChanges(ctx, m.log), m.storeErrorLogger("updating the control plane's addresses for agents"))
	})
	listening.Go(func() { m.sendHeartbeatsToLeader(ctx) })
	defer listening.Wait()
	for i, name := range []string{"netmaster", "netmaster.rpc"} {
		ip, port, err := net.SplitHostPort(m.services[i])
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(port)
		if err != nil {
			return err
		}
		entry, err := m.register(ctx, cluster.Service{
			ServiceName: name, Role: roleFollower, Version: daemon.Build().Version,
			HostAddr: ip, Port: n, Hostname: host, Scheme: m.scheme, TLS: m.both,
		})
		if err != nil {
			return err
		}
		entries = append(entries, entry)
	}
	return cluster.Candidate{
		Store: m.store, Key: cluster.LeaderKey, Value: m.address, TTL: m.ttl,
		OnError: m.storeErrorLogger("taking part in the election"),
		Lead: func(ctx context.Context, term store.Fence) error {
			m.log.Info("leading", "lock", term.Key, "term", int64(term.Create))
			m.setRole(ctx, entries, roleLeader)
			err := m.lead(ctx, term)
			m.log.Info("no longer leading", "term", int64(term.Create))
			// The term's context may have ended; the role must still be told.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			m.setRole(ctx, entries, roleFollower)
			return err
		},
	}.Run(ctx)
}

// register enters a service, waiting for the store as long as that takes.
func (m *member) register(ctx context.Context, s cluster.Service) (*cluster.Registration, error) {
	var r *cluster.Registration
	err := retry(ctx, m.log, "entering the service registry", func() (err error) {
		r, err = cluster.Register(ctx, m.store, s, m.storeErrorLogger("staying in the service registry"))
		return err
	})
	return r, err
}

func (m *member) setRole(ctx context.Context, entries []*cluster.Registration, role string) {
	if m.leading.Swap(role == roleLeader) != (role == roleLeader) {
		m.changes.Add(1)
	}
	for _, r := range entries {
		if err := r.SetRole(ctx, role); err != nil {
			m.log.Warn("the service registry shows another role for now", "role", role, "error", err)
		}
	}
}

// storeErrorLogger logs what goes wrong with the store, once a minute for each thing that
// is tried: while the store is away each is tried several times a second.
func (m *member) storeErrorLogger(what string) func(error) {
	return func(err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.lastLogged == nil {
			m.lastLogged = map[string]time.Time{}
		}
		if time.Since(m.lastLogged[what]) < repeatErrorEvery {
			return
		}
		m.lastLogged[what] = time.Now()
		m.log.Warn("failed; trying again", "what", what, "error", err)
	}
}

// repeatErrorEvery is the least time between two log lines about the same trouble.
const repeatErrorEvery = time.Minute

// Info answers /info.
func (m *member) Info(ctx context.Context) (api.Info, error) {
	info := api.Info{CurrentState: roleFollower, NetmasterNodes: []string{}, NetpluginNodes: []string{}}
	if m.leading.Load() {
		info.CurrentState = roleLeader
	}
	info.LocalIP, _, _ = net.SplitHostPort(m.address)
	leader, err := m.store.Get(ctx, cluster.LeaderKey)
	if err != nil {
		return info, err
	}
	info.LeaderIP = string(leader.Value)
	services, err := cluster.Services(ctx, m.store, "")
	if err != nil {
		return info, err
	}
	for _, s := range services {
		switch s.ServiceName {
		case "netmaster":
			info.NetmasterNodes = append(info.NetmasterNodes, s.HostAddr)
		case "netplugin", "netplugin.vtep":
			info.NetpluginNodes = append(info.NetpluginNodes, s.HostAddr)
		}
	}
	for _, nodes := range []*[]string{&info.NetmasterNodes, &info.NetpluginNodes} {
		slices.Sort(*nodes)
		*nodes = slices.Compact(*nodes)
	}
	return info, nil
}

// Masters tells the registered netmasters. The role is the lock's: what an
// instance has registered may be older.
func (m *member) Masters(ctx context.Context) ([]api.Master, error) {
	services, err := cluster.Services(ctx, m.store, cluster.ServiceMaster)
	if err != nil {
		return nil, err
	}
	leader, err := m.store.Get(ctx, cluster.LeaderKey)
	if err != nil {
		return nil, err
	}
	masters := []api.Master{}
	for _, s := range services {
		x := api.Master{Address: net.JoinHostPort(s.HostAddr, strconv.Itoa(s.Port)), Host: s.Hostname, Role: roleFollower, Version: s.Version}
		if x.Address == string(leader.Value) {
			x.Role = roleLeader
		}
		masters = append(masters, x)
	}
	return masters, nil
}

// Stores asks the store's servers.
func (m *member) Stores(ctx context.Context) []api.StoreServer {
	stores := []api.StoreServer{}
	if st, ok := m.store.(store.Inspectable); ok {
		for _, s := range st.Servers(ctx) {
			x := api.StoreServer{Address: s.Address, Version: s.Version, Leads: s.Leads, Size: s.Size, Quota: s.Quota, Alarms: s.Alarms, Took: s.Took.Seconds()}
			if s.Err != nil {
				x = api.StoreServer{Address: s.Address, Took: x.Took, Error: s.Err.Error()}
			}
			stores = append(stores, x)
		}
	}
	return stores
}

// metrics returns a registry with what the process, this member and its store's
// client tell.
func (m *member) metrics() (*prometheus.Registry, error) {
	b := daemon.Build()
	r := prometheus.NewRegistry()
	all := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netmaster_leader", Help: "1 while this netmaster leads, else 0.",
		}, func() float64 {
			if m.leading.Load() {
				return 1
			}
			return 0
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "contiv_netmaster_leader_changes_total", Help: "Times that this netmaster became the leader or stopped being it.",
		}, func() float64 { return float64(m.changes.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "contiv_netmaster_build_info", Help: "1, with version, commit and go as labels.",
			ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "go": b.Go},
		}, func() float64 { return 1 }),
	}
	if st, ok := m.store.(interface{ Collectors() []prometheus.Collector }); ok {
		all = append(all, st.Collectors()...)
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return r, nil
}

// retry calls f until it succeeds or ctx ends, and logs the first failure and
// then one a minute.
func retry(ctx context.Context, log *slog.Logger, what string, f func() error) error {
	var told time.Time
	again := waiting.NewRetry(waiting.BackoffConfig{Base: 100 * time.Millisecond, Max: 5 * time.Second})
	for {
		err := f()
		if err == nil {
			if !told.IsZero() {
				log.Info("succeeded after errors", "what", what)
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, context.Canceled) {
			return err
		}
		if time.Since(told) > repeatErrorEvery {
			told = time.Now()
			log.Warn("failed; trying again", "what", what, "error", err)
		}
		if err := again.Pause(ctx); err != nil {
			return err
		}
	}
}
