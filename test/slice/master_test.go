//go:build integration

package slice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/testcluster"
)

// client returns a client of netmaster's API.
func (c *cluster) client() *api.Client {
	c.t.Helper()
	a, err := c.Masters.API()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(a.Close)
	return a
}

// endpoints returns how many endpoints netmaster counts on a network.
func (c *cluster) endpoints(ctx context.Context, network string) (int, error) {
	r, err := c.client().Networks().Inspect(ctx, network)
	if err != nil {
		return 0, err
	}
	return r.Oper.NumEndpoints, nil
}

// hasEndpoints waits until netmaster counts n endpoints on a network.
func (c *cluster) hasEndpoints(network string, n int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	err := testcluster.Until(ctx, fmt.Sprintf("%s to have %d endpoints", network, n), func(ctx context.Context) error {
		got, err := c.endpoints(ctx, network)
		if err == nil && got != n {
			err = fmt.Errorf("it has %d", got)
		}
		return err
	})
	if err != nil {
		c.t.Error(err)
	}
}

// TestContainersTalkWithoutNetmaster checks that without netmaster containers keep talking, DEL
// works, ADD fails with a clear error, and that all converges when it is back.
func TestContainersTalkWithoutNetmaster(t *testing.T) {
	shared(t)
	onOne(t, both, netmasterGone)
}

func netmasterGone(t *testing.T, driver string) {
	c := pairUp(t, driver, "master")
	gone := spec("gone", "h2", "blue/net/servers")
	c.add(gone)
	c.hasEndpoints("blue:net", 4)
	if err := c.Process("netmaster").Kill(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"c s tcp/80", "c s udp/80 6", "c near icmp", "s c tcp/80"} {
		c.wants(line, testcluster.OK)
	}
	if a := c.ask("s near tcp/80", 400*time.Millisecond); a.Verdict != testcluster.Denied {
		t.Errorf("s near tcp/80: %s, want denied", a)
	}
	start := time.Now()
	if err := c.DelContainer(t.Context(), gone); err != nil {
		t.Errorf("DEL without netmaster: %v", err)
	}
	t.Logf("DEL without netmaster took %v", time.Since(start).Round(time.Millisecond))
	start = time.Now()
	_, err := c.AddContainer(t.Context(), spec("new", "h1", "blue/net/servers"))
	if err == nil || !strings.Contains(err.Error(), "netmaster") {
		t.Errorf("ADD without netmaster: %v, want an error that says so", err)
	}
	t.Logf("ADD without netmaster failed after %v: %v", time.Since(start).Round(time.Millisecond), err)
	if err := c.Masters.StartMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:net", 3)
	c.add(spec("new", "h1", "blue/net/servers"))
	c.wants("c new tcp/80", testcluster.OK)
	c.wants("s new tcp/80", testcluster.Denied)
}

// TestHostsKeepTheirStateWithoutEtcd checks that without etcd netmaster answers 503 and hosts keep
// what they have, a restarted netplugin as well; and that all converges when
// it is back.
func TestHostsKeepTheirStateWithoutEtcd(t *testing.T) {
	shared(t)
	onOne(t, both, etcdGone)
}

func etcdGone(t *testing.T, driver string) {
	c := pairUp(t, driver, "etcd")
	if err := c.Process("etcd").Kill(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := c.client().Tenants().Create(t.Context(), api.Tenant{TenantName: "green"})
	var ae *api.Error
	if !errors.As(err, &ae) || ae.Status != http.StatusServiceUnavailable {
		t.Errorf("create a tenant without etcd: %v, want 503", err)
	}
	t.Logf("a write without etcd failed after %v: %v", time.Since(start).Round(time.Millisecond), err)
	talks := func() {
		t.Helper()
		for _, line := range []string{"c s tcp/80", "c s udp/80 6", "c near icmp", "s c tcp/80"} {
			c.wants(line, testcluster.OK)
		}
		if a := c.ask("s near tcp/80", 400*time.Millisecond); a.Verdict != testcluster.Denied {
			t.Errorf("s near tcp/80: %s, want denied", a)
		}
	}
	talks()
	h := c.host("h1")
	if err := h.KillAgent(); err != nil {
		t.Fatal(err)
	}
	p, err := h.LaunchAgent()
	if err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := testcluster.Until(waiting, "netplugin to say that the store is away", func(context.Context) error {
		if s := p.Tail(50); !strings.Contains(s, "etcd") {
			return errors.New("its log does not")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	talks()
	if err := c.Store.StartEtcd(t.Context()); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := h.WaitAgent(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	t.Logf("the host is ready %v after etcd", time.Since(start).Round(time.Millisecond))
	c.add(spec("new", "h1", "blue/net/servers"))
	c.wants("c new tcp/80", testcluster.OK)
	talks()
}

// TestContainersTalkThroughCutsAndPauses checks what cut cables and a netmaster that hangs do:
// containers of one host keep talking, ADD gives up with an error instead of
// hanging, and all is well when the fault has gone.
func TestContainersTalkThroughCutsAndPauses(t *testing.T) {
	shared(t)
	onOne(t, both, cutAndPaused)
}

func cutAndPaused(t *testing.T, driver string) {
	c := pairUp(t, driver, "cut")
	h2 := c.host("h2")
	cables := func(up bool) { // to the other hosts, and to netmaster and etcd
		t.Helper()
		for _, link := range []string{"eth0", "ctl0"} {
			if err := h2.NS.SetLink(link, up); err != nil {
				t.Fatal(err)
			}
		}
	}
	cables(false)
	if a := c.ask("c s tcp/80", 400*time.Millisecond); a.Verdict != testcluster.Denied {
		t.Errorf("c s tcp/80 with h2's cables cut: %s, want denied", a)
	}
	c.wants("c near tcp/80", testcluster.OK)
	cables(true)
	c.wants("c s tcp/80", testcluster.OK)
	c.add(spec("far", "h2", "blue/net/servers"))
	c.wants("c far tcp/80", testcluster.OK)

	m := c.Process("netmaster")
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err := c.AddContainer(t.Context(), spec("new", "h1", "blue/net/servers"))
	took := time.Since(start)
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if err == nil || took > 60*time.Second {
		t.Errorf("ADD with netmaster hanging: %v after %v, want an error within a minute", err, took)
	}
	t.Logf("ADD with netmaster hanging failed after %v: %v", took.Round(time.Millisecond), err)
	c.wants("c near tcp/80", testcluster.OK)
	c.add(spec("new", "h1", "blue/net/servers"))
	c.wants("c new tcp/80", testcluster.OK)
	c.hasEndpoints("blue:net", 5)
}

// TestEmbeddedStoreOutlivesNetmaster checks a cluster whose netmaster keeps the store itself, and
// that the store outlives netmaster's death.
func TestEmbeddedStoreOutlivesNetmaster(t *testing.T) {
	shared(t)
	onOne(t, both, embeddedEtcd)
}

func embeddedEtcd(t *testing.T, driver string) {
	c := up(t, driver, "embed", 2, func(cfg *testcluster.Config) { cfg.Embedded = true })
	c.netctl("tenant create blue", "network create -t blue -e vxlan -s 10.1.1.0/24 net")
	c.add(spec("a", "h1", "blue/net"), spec("b", "h2", "blue/net"))
	c.wants("a b tcp/80", testcluster.OK)
	if err := c.Process("netmaster").Kill(); err != nil {
		t.Fatal(err)
	}
	c.wants("b a udp/80", testcluster.OK)
	if err := c.Masters.StartMaster(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.hasEndpoints("blue:net", 2)
	for _, h := range c.Hosts() { // until its mirror follows again
		if err := h.WaitAgent(t.Context(), h.Agent()); err != nil {
			t.Fatal(err)
		}
	}
	c.add(spec("d", "h2", "blue/net"))
	c.wants("a d tcp/80", testcluster.OK)
}
