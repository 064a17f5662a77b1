package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/datapath/driver"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiserver"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni"
	"github.com/contiv/netplugin/v2/internal/netplugin/runtimes/cni/server"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
	"github.com/contiv/netplugin/v2/internal/testcluster/testenv"
)

// master is a netmaster reduced to the calls that an agent makes, so that
// tests can break it at will.
type master struct {
	*httptest.Server
	st      store.Store
	keep    *control.Controller // of hosts: as netmaster does it
	gone    atomic.Bool         // answers 503
	deaf    atomic.Bool         // answers 503 to what agents tell of their hosts
	idle    atomic.Bool         // answers 503 to what agents want of endpoints
	around  func(leaving bool)  // before a host's report is taken, or behind its last one
	global  atomic.Int64        // revision of namespaces and settings
	written atomic.Int64        // likewise of what the tenant has beside endpoints
	mu      sync.Mutex
	calls   map[string]int
	places  map[api.Pod]api.PodPlacement // where pods belong; others have no Kubernetes
	// The last request of each kind, by endpoint.
	created map[string]api.CreateEndpointRequest
	reports map[string]api.UpdateEndpointRequest
}

// refusedAddr is an address that master gives to no endpoint.
var refusedAddr = netip.MustParseAddr("10.1.1.78")

func newMaster(t testing.TB, st store.Store) *master {
	t.Helper()
	m := &master{
		st: st, keep: control.New(st, control.Options{Log: slog.New(slog.DiscardHandler)}), calls: map[string]int{}, around: func(bool) {},
		places:  map[api.Pod]api.PodPlacement{},
		created: map[string]api.CreateEndpointRequest{}, reports: map[string]api.UpdateEndpointRequest{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plugin/pod", func(w http.ResponseWriter, r *http.Request) {
		var req api.PodPlacementRequest
		m.serve(w, r, &req, func() (any, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			place := m.places[api.Pod{Namespace: req.Namespace, Name: req.Name, UID: req.UID}]
			if i := req.Interface; i != nil {
				if i.TenantName != "" && i.TenantName != place.TenantName || i.ServiceName == "refused" {
					return nil, model.Errorf(model.ErrInvalid, "tenant %q and group %q are not for pod %s", i.TenantName, i.ServiceName, req.Name)
				}
				return api.PodPlacement{Followed: place.Followed, UID: place.UID, TenantName: place.TenantName}, nil
			}
			return place, nil
		})
	})
	mux.HandleFunc("POST /plugin/createEndpoint", func(w http.ResponseWriter, r *http.Request) {
		var req api.CreateEndpointRequest
		m.serve(w, r, &req, func() (any, error) { return m.create(r.Context(), req) })
	})
	mux.HandleFunc("POST /plugin/deleteEndpoint", func(w http.ResponseWriter, r *http.Request) {
		var req api.DeleteEndpointRequest
		m.serve(w, r, &req, func() (any, error) { return m.delete(r.Context(), req) })
	})
	mux.HandleFunc("POST /plugin/updateEndpoint", func(w http.ResponseWriter, r *http.Request) {
		var req api.UpdateEndpointRequest
		m.serve(w, r, &req, func() (any, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.reports[req.EndpointID] = req
			return api.UpdateEndpointResponse{}, nil
		})
	})
	mux.HandleFunc("GET /api/v1/endpoints", func(w http.ResponseWriter, r *http.Request) {
		if m.gone.Load() {
			http.Error(w, "the store is away", http.StatusServiceUnavailable)
			return
		}
		eps, err := endpointsOn(r.Context(), m.st, model.HostName(r.URL.Query().Get("host")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		out := make([]api.EndpointOper, len(eps))
		for i, e := range eps {
			out[i] = api.EndpointOper{Key: e.Key.String(), ServiceName: string(e.Group)}
		}
		writeJSON(w, http.StatusOK, out)
	})
	mux.HandleFunc("POST /plugin/host", func(w http.ResponseWriter, r *http.Request) {
		var req api.HostReport
		m.serve(w, r, &req, func() (any, error) {
			report, err := apiserver.HostReport(req)
			m.mu.Lock()
			around := m.around
			m.mu.Unlock()
			if err != nil {
				return nil, err
			}
			ctx := context.WithoutCancel(r.Context()) // as one that is under way in the store
			if req.Leaving {
				err := m.keep.HostLeases.ReleaseHost(ctx, control.Admin(), report.Name, report.Installation)
				around(true)
				return api.HostReportResponse{}, err
			}
			around(false)
			return apiserver.HostReportResponse(m.keep.HostLeases.RenewHost(ctx, control.Admin(), report))
		})
	})
	mux.HandleFunc("POST /plugin/hostStatus", func(w http.ResponseWriter, r *http.Request) {
		var req api.HostStatusReport
		m.serve(w, r, &req, func() (any, error) {
			status, err := apiserver.HostStatus(req)
			if err == nil {
				_, err = m.keep.HostLeases.PutHostStatus(r.Context(), control.Admin(), req.Installation, status)
			}
			return "ok", err
		})
	})
	mux.HandleFunc("POST /plugin/answer", m.answer)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		if m.gone.Load() {
			http.Error(w, "the store is away", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, http.StatusOK, api.Version{Version: "test"})
	})
	m.Server = httptest.NewServer(mux)
	t.Cleanup(m.Close)
	return m
}

func (m *master) serve(w http.ResponseWriter, r *http.Request, in any, f func() (any, error)) {
	m.mu.Lock()
	m.calls[r.URL.Path]++
	m.mu.Unlock()
	told := strings.HasPrefix(r.URL.Path, "/plugin/host")
	if m.gone.Load() || m.deaf.Load() && told || m.idle.Load() && !told {
		http.Error(w, "the store is away", http.StatusServiceUnavailable)
		return
	}
	err := json.NewDecoder(r.Body).Decode(in)
	var out any
	if err == nil {
		out, err = f()
	}
	switch {
	case errors.Is(err, model.ErrNotFound):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, model.ErrConflict):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		writeJSON(w, http.StatusOK, out)
	}
}

func (m *master) create(ctx context.Context, r api.CreateEndpointRequest) (any, error) {
	nk := model.NetworkKey{Tenant: model.TenantName(r.TenantName), Name: model.NetworkName(r.NetworkName)}
	id, err := model.ParseEndpointID(r.EndpointID)
	if err != nil {
		return nil, err
	}
	key := model.EndpointKey{Network: nk, ID: id}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created[r.EndpointID] = r
	if r.ConfigEP.IPAddress == refusedAddr.String() {
		return nil, model.Errorf(model.ErrConflict, "address %s belongs to another endpoint", refusedAddr)
	}
	all, _, err := m.st.Range(ctx, tables.TenantPrefix(nk.Tenant))
	if err != nil {
		return nil, err
	}
	taken := map[netip.Addr]model.EndpointKey{}
	for _, kv := range all {
		if ch, err := tables.Decode(store.Event{KV: kv}); err == nil {
			if ep, ok := ch.Value.(model.Endpoint); ok && ep.Key.Network == nk {
				taken[ep.IPv4] = ep.Key
			}
		}
	}
	var ep model.Endpoint
	rev, err := m.st.Update(ctx, func(tx store.Tx) error {
		n, err := tables.Networks.Get(tx, nk)
		if err != nil {
			return err
		}
		row, err := tables.Endpoints.Find(tx, key)
		if err != nil || row.Exists() {
			ep = row.Value
			return err
		}
		ep = model.Endpoint{
			Key: key, Group: model.GroupName(r.ServiceName), Host: model.HostName(r.ConfigEP.Host),
			Container: r.ConfigEP.Container, Identity: model.IdentityFirst,
		}
		if a := r.ConfigEP.IPAddress; a != "" {
			ep.IPv4 = netip.MustParseAddr(a)
			if k, ok := taken[ep.IPv4]; ok {
				return model.Errorf(model.ErrConflict, "address %s is taken by %s", a, k)
			}
		} else {
			for ep.IPv4 = n.Subnet.Addr().Next(); taken[ep.IPv4] != (model.EndpointKey{}) || ep.IPv4 == n.Gateway; {
				ep.IPv4 = ep.IPv4.Next()
			}
		}
		if n.Subnet6.IsValid() {
			b := n.Subnet6.Addr().As16()
			v4 := ep.IPv4.As4()
			copy(b[12:], v4[:])
			ep.IPv6 = netip.AddrFrom16(b)
		}
		ep.MAC = model.EndpointMAC(nk, ep.IPv4, ep.IPv6)
		return tables.Endpoints.Create(tx, ep)
	})
	if err != nil {
		return nil, err
	}
	ec := api.EndpointConfig{
		EndpointID: r.EndpointID, ServiceName: r.ServiceName, IPAddress: ep.IPv4.String(),
		MacAddress: ep.MAC.String(), HomingHost: string(ep.Host),
	}
	if ep.IPv6.IsValid() {
		ec.IPv6Address = ep.IPv6.String()
	}
	return api.CreateEndpointResponse{EndpointConfig: ec, Revision: int64(rev), GlobalRevision: m.global.Load(), TenantWritten: m.written.Load()}, nil
}

func (m *master) delete(ctx context.Context, r api.DeleteEndpointRequest) (any, error) {
	key := model.EndpointKey{
		Network: model.NetworkKey{Tenant: model.TenantName(r.TenantName), Name: model.NetworkName(r.NetworkName)},
		ID:      model.EndpointID(r.EndpointID),
	}
	_, err := m.st.Update(ctx, func(tx store.Tx) error {
		if _, err := tables.Endpoints.Get(tx, key); err != nil {
			return err
		}
		tables.Endpoints.Delete(tx, key)
		return nil
	})
	return api.DeleteEndpointResponse{}, err
}

// bed is one host on an in-memory store, with a reference data plane.
type bed struct {
	t      *testing.T
	st     *memory.Store // of the test and the master
	agentS *memory.Store // of the agent: faults of its own
	master *master
	fake   *reference.Driver
	dir    string
	cfg    Config
	agent  *Agent
	stop   func()
}

const testHost = "n-host1"

func newBed(t *testing.T, change ...func(*Config)) *bed {
	t.Helper()
	testenv.Need(t)
	st := memory.New()
	b := &bed{t: t, st: st, agentS: st.Client(), fake: reference.New(), dir: shortDir(t)}
	b.fake.Interfaces(func(name string) bool { _, err := net.InterfaceByName(name); return err == nil })
	b.master = newMaster(t, st)
	b.put(func(tx store.Tx) error {
		return errors.Join(
			tables.Globals.Put(tx, model.Global{
				FwdMode: model.FwdBridge, ArpMode: model.ArpProxy,
				VLANs: model.TagRange{Lo: 1, Hi: 4094}, VXLANs: model.TagRange{Lo: 1, Hi: 10000},
				PvtSubnet: netip.MustParsePrefix("172.19.0.0/16"),
			}),
			tables.Tenants.Put(tx, model.Tenant{Name: "default"}),
			tables.Tenants.Put(tx, model.Tenant{Name: "blue", DefaultNetwork: "net1"}),
		)
	})
	b.network("blue", "net1", 1)
	b.network("default", "default-net", 2)
	b.cfg = Config{
		Probe: func(context.Context, netip.Addr) (bool, error) { return true, nil },
		Host:  testHost, Control: netip.MustParseAddr("10.9.0.1"), VTEP: netip.MustParseAddr("10.9.0.1"),
		DriverName: "fake", Store: b.agentS, Log: testLog(t),
		StateDir: filepath.Join(b.dir, "state"), Socket: filepath.Join(b.dir, "cni.sock"),
		RESTAddress: "127.0.0.1:0", Netmasters: b.master.URL, UnderlayMTU: 1500,
		AttachTimeout: 10 * time.Second, StatusEvery: 10 * time.Millisecond,
	}
	for _, f := range change {
		f(&b.cfg)
	}
	b.start()
	t.Cleanup(func() {
		b.stop()
		b.noVeths()
	})
	return b
}

// shortDir is a directory whose path leaves room for a unix socket's (108 bytes).
func shortDir(t testing.TB) string {
	t.Helper()
	d, err := os.MkdirTemp("", "n-agent-") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	})
	return d
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

func (b *bed) put(fn func(store.Tx) error) store.Revision {
	b.t.Helper()
	rev, err := b.st.Update(b.t.Context(), fn)
	if err != nil {
		b.t.Fatal(err)
	}
	return rev
}

func (b *bed) network(tenant model.TenantName, name model.NetworkName, id model.NetworkID) {
	b.t.Helper()
	b.put(func(tx store.Tx) error {
		return errors.Join(
			tables.Networks.Put(tx, model.Network{
				Key: model.NetworkKey{Tenant: tenant, Name: name}, Type: model.NetworkData, Encap: model.EncapVXLAN,
				Tag: 100 + uint32(id), ID: id,
				Subnet:  netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", id)),
				Gateway: netip.MustParseAddr(fmt.Sprintf("10.1.%d.254", id)),
				Subnet6: netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", id)),
			}),
			tables.Identities.Put(tx, model.IdentityRecord{
				ID: model.IdentityFirst, Network: model.NetworkKey{Tenant: tenant, Name: name},
			}))
	})
}

// start makes an agent from the bed's configuration and runs it.
func (b *bed) start() {
	b.t.Helper()
	b.startWith(b.fake)
}

func (b *bed) startWith(d driver.Driver) {
	b.t.Helper()
	b.cfg.Driver = d
	a, err := New(b.t.Context(), b.cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	a.Handle("POST "+cni.Path, server.Handler(a.Runtime()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.agent = a
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	})
}

// restart stops the agent in order and starts another on the same host.
func (b *bed) restart() {
	b.t.Helper()
	b.stop()
	b.fake = b.fake.Restart()
	b.start()
}

func (b *bed) ready() {
	b.t.Helper()
	b.eventually("the agent is ready", func() error { return b.client().Ready(b.t.Context()) })
}

func (b *bed) spool() attach.Spool {
	return attach.Spool{Dir: filepath.Join(b.cfg.StateDir, attach.SpoolDir)}
}

func (b *bed) client() attach.Client { return attach.Client{Socket: b.cfg.Socket} }

// eventually waits for a condition.
func (b *bed) eventually(what string, f func() error) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("%s: still not: %v", what, err)
		}
	}
}

func (b *bed) endpoints() []model.Endpoint {
	b.t.Helper()
	eps, err := endpointsOn(b.t.Context(), b.st, testHost)
	if err != nil {
		b.t.Fatal(err)
	}
	return eps
}

func endpointsOn(ctx context.Context, st store.Store, host model.HostName) ([]model.Endpoint, error) {
	kvs, _, err := st.Range(ctx, tables.StatePrefix)
	var out []model.Endpoint
	for _, kv := range kvs {
		if ch, err := tables.Decode(store.Event{KV: kv}); err == nil {
			if ep, ok := ch.Value.(model.Endpoint); ok && ep.Host == host {
				out = append(out, ep)
			}
		}
	}
	return out, err
}
