//go:build integration

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/waiting"
	"github.com/contiv/netplugin/v2/internal/datapath/reference"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netplugin/agent"
	"github.com/contiv/netplugin/v2/internal/netplugin/attach"
)

// node is a host: an agent on the reference driver, with ways of its own to each
// netmaster, and containers that come and go.
type node struct {
	w     *world
	name  model.HostName
	n     int
	dir   string
	drv   *reference.Driver
	turn  sync.Mutex // held by the fault that is made here
	ways  []*link    // to netmasters
	work  sync.Mutex // held while a container comes or goes, and while the agent is another
	agent *agent.Agent
	wire  wire
	stop  func()
	// has are the containers that were attached, with their addresses, until their
	// end is asked for; maybe are those whose attachment failed.
	has   map[string]netip.Addr
	maybe map[string]bool
	made  int
}

// agents are how many hosts there are.
const agents = 5

func (w *world) startAgents(dir func() string) []*node {
	w.t.Helper()
	var out []*node
	for n := range agents {
		h := &node{
			w: w, n: n, name: model.HostName(fmt.Sprintf("h%d", n)), dir: dir(), drv: reference.New(),
			has: map[string]netip.Addr{}, maybe: map[string]bool{},
		}
		for _, s := range w.seats {
			h.ways = append(h.ways, newLink(w.t, s.target))
		}
		h.start()
		w.t.Cleanup(func() { h.stop() })
		out = append(out, h)
	}
	return out
}

func (h *node) start() {
	st, wire := h.w.st.connect(h.w.t, false)
	h.drv.Interfaces(func(name string) bool { _, err := net.InterfaceByName(name); return err == nil })
	var urls []string
	for _, l := range h.ways {
		urls = append(urls, "http://"+l.address)
	}
	addr := netip.AddrFrom4([4]byte{10, 9, 0, byte(h.n + 1)})
	a, err := agent.New(context.Background(), agent.Config{
		Host: h.name, Control: addr, VTEP: addr, DriverName: "fake", Driver: h.drv, Store: st, Log: h.w.log.With("host", h.name),
		StateDir: h.dir, Socket: filepath.Join(h.dir, "s"), UnderlayMTU: 1500, NoDNS: true,
		Netmasters: strings.Join(urls, ","), FromNetmasters: h.n%2 == 0, AttachTimeout: clientPatience, SpoolEvery: time.Second,
	})
	if err != nil {
		h.w.t.Errorf("%s: %v", h.name, err)
		_ = st.Close()
		h.stop = func() {}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	h.agent, h.wire = a, wire
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.w.t.Errorf("%s: Run: %v", h.name, err)
		}
		wire.cut()
		_ = st.Close()
	})
}

// live has containers come and go until ctx ends.
func (h *node) live(ctx context.Context, seed uint64) {
	chance := rand.New(rand.NewPCG(seed, 2000+uint64(h.n))) //nolint:gosec // a test's
	for ctx.Err() == nil {
		h.work.Lock()
		names := slices.Sorted(maps.Keys(h.has))
		if len(names) > 0 && (len(names) > 5 || chance.IntN(2) == 0) {
			h.detach(ctx, names[chance.IntN(len(names))])
		} else {
			h.attach(ctx, fmt.Sprintf("%s-c%d", h.name, h.made))
			h.made++
		}
		h.work.Unlock()
		_ = waiting.Pause(ctx, time.Duration(chance.IntN(100))*time.Millisecond)
	}
}

func (h *node) attach(ctx context.Context, name string) {
	r, err := h.agent.Attachments.Attach(ctx, attach.Request{
		Key: attach.Key{Container: name, IfName: "eth0"}, Tenant: tenant, Network: hostsNet, Source: attach.SourceDocker, Parked: true,
	})
	if err != nil {
		h.maybe[name] = true
		return
	}
	h.has[name] = r.Addresses[0].Prefix.Addr()
}

func (h *node) detach(ctx context.Context, name string) {
	delete(h.has, name)
	h.maybe[name] = true
	if err := h.agent.Attachments.Detach(ctx, attach.DetachRequest{Key: attach.Key{Container: name, IfName: "eth0"}}); err == nil {
		delete(h.maybe, name)
	}
}

// restart replaces the agent. A killed agent does not deregister.
func (h *node) restart(kill bool) (undo func()) {
	if kill {
		h.wire.cut()
		for _, l := range h.ways {
			l.cut()
		}
	}
	h.work.Lock()
	h.stop()
	return func() {
		defer h.work.Unlock()
		for _, l := range h.ways {
			l.heal()
		}
		h.drv = h.drv.Restart()
		h.start()
	}
}

// hostFaults are what goes wrong with agents and on their ways.
func hostFaults(nodes []*node) []fault {
	on := func(name string, do func(h *node, chance *rand.Rand) (undo func())) fault {
		return fault{name, func(_ context.Context, chance *rand.Rand) func() {
			h := nodes[chance.IntN(len(nodes))]
			if !h.turn.TryLock() {
				return nil
			}
			undo := do(h, chance)
			return func() {
				undo()
				h.turn.Unlock()
			}
		}}
	}
	each := func(h *node, do func(l *link)) {
		for _, l := range h.ways {
			do(l)
		}
	}
	return []fault{
		on("an agent is killed", func(h *node, _ *rand.Rand) func() { return h.restart(true) }),
		on("an agent is stopped", func(h *node, _ *rand.Rand) func() { return h.restart(false) }),
		on("an agent loses the store", func(h *node, _ *rand.Rand) func() {
			h.wire.cut()
			return h.wire.heal
		}),
		on("an agent waits for the store", func(h *node, _ *rand.Rand) func() {
			h.wire.stall(false)
			return h.wire.heal
		}),
		on("an agent is cut off from one netmaster", func(h *node, c *rand.Rand) func() {
			l := h.ways[c.IntN(len(h.ways))]
			l.cut()
			return l.heal
		}),
		on("netmasters' answers do not reach an agent", func(h *node, _ *rand.Rand) func() {
			each(h, func(l *link) { l.stall(true) })
			return func() { each(h, (*link).heal) }
		}),
		on("an agent is paused", func(h *node, _ *rand.Rand) func() {
			h.wire.stall(false)
			each(h, func(l *link) { l.stall(false) })
			return func() {
				h.wire.heal()
				each(h, (*link).heal)
			}
		}),
	}
}

// settled reports whether the cluster's endpoints of a host are those of its
// containers, with the addresses that these were told.
func (h *node) settled(ctx context.Context) error {
	h.work.Lock()
	defer h.work.Unlock()
	for name := range h.maybe { // whatever became of it, it ends
		if err := h.agent.Attachments.Detach(ctx, attach.DetachRequest{Key: attach.Key{Container: name, IfName: "eth0"}}); err != nil && !errors.Is(err, model.ErrNotFound) {
			return err
		}
		delete(h.maybe, name)
	}
	c, err := api.NewClient(h.w.seats[0].url(), api.WithTimeout(10*time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	var list []api.EndpointOper
	if err := c.Do(ctx, http.MethodGet, "/api/v1/endpoints?host="+string(h.name), nil, &list); err != nil {
		return err
	}
	want := map[string]string{}
	for name, a := range h.has {
		want[name] = a.String()
	}
	is := map[string]string{}
	for _, e := range list {
		is[e.ContainerID] = e.IPAddress[0]
	}
	if !maps.Equal(want, is) {
		return fmt.Errorf("%s has the containers %v, and the cluster's endpoints of it are %v", h.name, want, is)
	}
	return nil
}

// hostsNet is where agents' containers are.
const hostsNet = "hosts"

// withAgents gives a world agents whose containers come and go during a run.
func (w *world) withAgents(t *testing.T, seed uint64) (finish func()) {
	t.Helper()
	body := fmt.Sprintf(`{"tenantName":%q,"networkName":%q,"encap":"vxlan","subnet":"10.201.0.0/26","gateway":"10.201.0.62"}`, tenant, hostsNet)
	w.eventually("there is a network for containers", func() error {
		if err := w.setUp(t.Context()); err != nil {
			return err
		}
		return ask(t.Context(), http.MethodPut, w.seats[0].url()+"/api/v1/networks/"+tenant+":"+hostsNet+"/", body)
	})
	nodes := w.startAgents(func() string { return shortDir(t) })
	w.more = append(w.more, hostFaults(nodes)...)
	ctx, cancel := context.WithCancel(t.Context())
	var living sync.WaitGroup
	for _, h := range nodes {
		living.Go(func() { h.live(ctx, seed) })
	}
	return func() {
		cancel()
		living.Wait()
		total := 0
		for _, h := range nodes {
			w.eventually(string(h.name)+" and the cluster agree", func() error { return h.settled(t.Context()) })
			total += h.made
			if h.made == 0 {
				t.Errorf("%s: no container came", h.name)
			}
		}
		t.Logf("%d containers came and went on %d hosts", total, len(nodes))
	}
}
