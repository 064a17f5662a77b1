package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/condition"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
)

// master is a netmaster inside this process, made of the same parts as the
// program (cmd/netmaster), which sweeps more often.
type master struct {
	t       *testing.T
	listens string // host:port of its API
	st      store.Store
	ctrl    *control.Controller
	server  *http.Server
	leading atomic.Bool
	close   context.CancelFunc // ends its streams
	end     context.CancelFunc
	ended   sync.WaitGroup
}

const (
	sweepEvery = 200 * time.Millisecond
	tellEach   = time.Second
)

// startMaster serves the API over a connection to the store at an address, with
// mutant (nil = none) before it.
func startMaster(t *testing.T, st store.Store, listen string, mutant func(http.Handler) http.Handler, log *slog.Logger) *master {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	streams, closeStreams := context.WithCancel(ctx)
	m := &master{t: t, listens: ln.Addr().String(), st: st, close: closeStreams, end: end}
	m.ctrl = control.New(st, control.Options{Log: log, RelayBeat: relayBeat})
	watch := m.ctrl.Hosts.NewHostWatch()
	h, err := apiserver.New(apiserver.Config{Control: m.ctrl, Cluster: m, Watch: watch, Mode: "test", Log: log, Stopping: streams.Done()})
	if err != nil {
		t.Fatal(err)
	}
	if mutant != nil {
		h = mutant(h)
	}
	m.server = &http.Server{Handler: h, ReadHeaderTimeout: clientPatience}
	m.part(ctx, "the API", func(context.Context) error {
		if err := m.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	m.part(ctx, "the view", m.ctrl.Run)
	m.part(ctx, "the watch on hosts", watch.Run)
	m.part(ctx, "telling the leader", m.tellLeader)
	m.part(ctx, "the election", cluster.Candidate{Store: st, Key: cluster.LeaderKey, Value: m.listens, Lead: m.lead}.Run)
	return m
}

// part runs a part until ctx ends; it may fail only then.
func (m *master) part(ctx context.Context, what string, run func(context.Context) error) {
	m.ended.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			m.t.Errorf("netmaster %s: %s ends: %v", m.listens, what, err)
		}
	})
}

// lead is what the leader does besides.
func (m *master) lead(ctx context.Context, term store.Fence) error {
	m.leading.Store(true)
	defer m.leading.Store(false)
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	for _, do := range []func(context.Context, control.Leader) error{m.ctrl.HostLeases.ExpireHosts, m.ctrl.LabelFilter.FollowLabelFilter, m.ctrl.Tenants.GiveRouters} {
		all.Go(func() { _ = do(ctx, control.Leader(term)) }) // another leads, or the store is away: the next term does it
	}
	if err := m.ctrl.Repair.Sweep(ctx, control.Leader(term), sweepEvery); !errors.Is(err, store.ErrFenced) {
		return err
	}
	return nil
}

// tellLeader tells the netmaster that leads of the agents that this one hears of.
func (m *master) tellLeader(ctx context.Context) error {
	for waiting.Pause(ctx, tellEach) == nil {
		names := m.ctrl.Heartbeats.TakeUnreported()
		if m.leading.Load() || len(names) == 0 {
			continue
		}
		if err := m.tell(ctx, names); err != nil {
			m.ctrl.Heartbeats.Requeue(names)
		}
	}
	return nil
}

func (m *master) tell(ctx context.Context, names []model.HostName) error {
	leader, err := cluster.Leader(ctx, m.st, cluster.LeaderKey)
	if err != nil {
		return err
	}
	c, err := api.NewClient("http://"+leader, api.WithTimeout(clientPatience))
	if err != nil {
		return err
	}
	defer c.Close()
	heard := api.HostHeartbeats{Hosts: []string{}}
	for _, n := range names {
		heard.Hosts = append(heard.Hosts, string(n))
	}
	return c.Do(ctx, http.MethodPost, "/plugin/hostsHeard", heard, nil)
}

func (m *master) address() string { return m.listens }

// stop ends it in order: requests first.
func (m *master) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	m.close()
	_ = m.server.Shutdown(ctx) // what does not end in time is cut by the next line
	m.kill()
}

// kill ends it at once. Its connection to the store has to be cut before, or it
// puts things in order that one who is killed does not; it has ended when kill
// returns.
func (m *master) kill() {
	_ = m.server.Close() // it has nothing more to say
	m.end()
	m.ended.Wait()
	_ = m.st.Close() // likewise
}

// Info, Masters, Stores and Health answer the API's questions about the cluster.
func (m *master) Info(context.Context) (api.Info, error)        { return api.Info{}, nil }
func (m *master) Masters(context.Context) ([]api.Master, error) { return nil, nil }
func (m *master) Stores(context.Context) []api.StoreServer      { return nil }
func (m *master) Health(ctx context.Context) (h api.Health) {
	_, err := m.ctrl.View(ctx)
	h.Ready = true
	condition.MasterStore.Add(&h, err)
	return h
}
