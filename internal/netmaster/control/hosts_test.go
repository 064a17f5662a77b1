package control

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/cluster"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// agentOf registers a host as its agent does.
func agentOf(c *harness, name model.HostName, vtep string) *cluster.Registration {
	c.t.Helper()
	_, err := c.st.Update(context.Background(), func(tx store.Tx) error {
		if err := tables.HostStatuses.Put(tx, tables.HostStatus{Host: name, Updated: "2026-11-21T00:00:00Z", Ready: true}); err != nil {
			return err
		}
		return tables.Hosts.Put(tx, model.Host{Name: name})
	})
	c.ok(err)
	reg, err := cluster.Register(context.Background(), c.st, cluster.Service{ServiceName: cluster.ServiceAgent, HostAddr: vtep, Port: 4789, Hostname: string(name)}, nil)
	c.ok(err)
	return reg
}

// TestAliveHostsAreNotRemoved: a host that is alive, or has endpoints, stays; what is removed
// leaves nothing, and may come back.
func TestAliveHostsAreNotRemoved(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	reg := agentOf(c, "host2", "10.0.0.2")
	for _, id := range []string{"x1", "x2", "x3", "x4", "x5", "x6", "x7"} {
		c.create(endpoint("v1", id, func(e *model.Endpoint) { e.Host = "host2" }))
	}
	remove := func(force bool) func() error {
		return func() error { _, _, err := c.Hosts.RemoveHost(ctx, Admin(), "host2", force); return err }
	}
	if h, err := c.Hosts.Get(ctx, Admin(), "host2"); err != nil || !h.Alive || !h.Known || !h.HasStatus || h.Endpoints != 7 || h.LastStatusTime().IsZero() {
		t.Errorf("an alive host: %+v, %v", h, err)
	}
	c.refused(model.ErrInUse, "is alive", remove(false))
	c.refused(model.ErrInUse, "is alive", remove(true))
	c.ok(reg.Close())
	if h, err := c.Hosts.Get(ctx, Admin(), "host2"); err != nil || h.Alive || h.Endpoints != 7 {
		t.Errorf("a host that is away: %+v, %v", h, err)
	}
	c.refused(model.ErrInUse, "7 endpoints (default:v1:x1, ", remove(false))
	if n := c.fresh().Endpoints.CountOfHost("host2"); n != 7 {
		t.Errorf("a refusal left %d endpoints", n)
	}
	if n, _, err := c.Hosts.RemoveHost(ctx, Admin(), "host2", true); n != 7 || err != nil {
		t.Errorf("released %d, %v; want 7", n, err)
	}
	c.refused(model.ErrNotFound, `host "host2"`, remove(false))
	for key, value := range c.dump() {
		if strings.Contains(key, "host2") || strings.Contains(value, "host2") {
			t.Errorf("left: %s %s", key, value)
		}
	}
	reg = agentOf(c, "host2", "10.0.0.2")
	if h, err := c.Hosts.Get(ctx, Admin(), "host2"); err != nil || !h.Alive {
		t.Errorf("back again: %+v, %v", h, err)
	}
	c.ok(reg.Close())
}

// pass lets a bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestPoolUseListsFullestFirst: what is taken of tags and addresses, the fullest network first.
func TestPoolUseListsFullestFirst(t *testing.T) {
	c := base(t)
	before := c.fresh()
	vlans, vnis := before.Addresses.TagPools()
	c.put(with(network("small", "10.77.0.0/29"), func(n *model.Network) { n.Gateway = addr("10.77.0.1") }))
	for _, id := range []string{"s1", "s2", "s3"} {
		c.create(endpoint("small", id))
	}
	v := c.fresh()
	if a, b := v.Addresses.TagPools(); a.Used+b.Used != vlans.Used+vnis.Used+1 || a.Size != vlans.Size || b.Size != vnis.Size || a.Size == 0 {
		t.Errorf("tags: %v %v, before %v %v", a, b, vlans, vnis)
	}
	if p := v.Addresses.AddressPools(); len(p) < 2 || p[0].Network.Name != "small" || p[0].Used != 3 || p[0].Size != 5 {
		t.Errorf("addresses: %+v", p)
	}
}
