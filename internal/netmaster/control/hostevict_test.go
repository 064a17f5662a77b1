package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestEvictionReleasesHostsThatAreAwayOnly: what a host that is away has is given up, once that is confirmed, and
// the host stays known; not what an alive one has, nor one that comes back in between.
func TestEvictionReleasesHostsThatAreAwayOnly(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	r := reportOf("host2", "i")
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		c.create(endpoint("v1", fmt.Sprint("x", i), func(e *model.Endpoint) { e.Host = "host2" }))
	}
	evict := func(name model.HostName, force bool) func() error {
		return func() error { _, _, err := c.Hosts.EvictHost(ctx, Admin(), name, force); return err }
	}
	c.refused(model.ErrInUse, "is alive", evict("host2", true))
	c.refused(model.ErrNotFound, "nosuch", evict("nosuch", true))
	c.ok(c.HostLeases.ReleaseHost(ctx, Admin(), "host2", "i"))
	c.refused(model.ErrInUse, "has 7 endpoints (default:v1:x0, ", evict("host2", false))
	_, err := c.st.Update(ctx, func(tx store.Tx) error {
		return tables.AwayTimes.Put(tx, tables.AwayTime{Host: "host2", Seconds: 5})
	})
	c.ok(err)

	came := errors.New("not back yet")
	back := func(tx store.Tx) error { // the host is back once the first endpoints are gone
		if c.fresh().Endpoints.CountOfHost("host2") < 7 {
			if _, err := c.HostLeases.RenewHost(ctx, Admin(), r); err != nil {
				return err
			}
			came = nil
		}
		return checkStillAway("host2")(tx)
	}
	n, err := c.Hosts.evict(ctx, c.as(Admin()), "host2", c.fresh().Endpoints.OfHost("host2"), back)
	if !errors.Is(err, model.ErrInUse) || n != batch || came != nil {
		t.Errorf("of a host that comes back %d endpoints were released, %v, %v", n, err, came)
	}
	if left := c.fresh().Endpoints.CountOfHost("host2"); left != 7-batch {
		t.Errorf("it has %d endpoints left", left)
	}
	if a, there := c.fresh().Hosts.AwayTime("host2"); there {
		t.Errorf("it is back, and away: %+v", a)
	}
	c.ok(c.HostLeases.ReleaseHost(ctx, Admin(), "host2", "i"))
	_, err = c.st.Update(ctx, func(tx store.Tx) error {
		return tables.AwayTimes.Put(tx, tables.AwayTime{Host: "host2", Seconds: 5})
	})
	c.ok(err)
	late := func(store.Tx) error { return context.DeadlineExceeded } // as of many endpoints, in the time of one request
	if n, err := c.Hosts.evict(ctx, c.as(Admin()), "host2", c.fresh().Endpoints.OfHost("host2"), late); n != 0 || !errors.Is(err, model.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "0 of its 1 endpoints are released") || !strings.Contains(err.Error(), "repeat it") {
		t.Errorf("an eviction that takes too long: %d, %v", n, err)
	}
	if n, _, err := c.Hosts.EvictHost(ctx, Admin(), "host2", true); n != 7-batch || err != nil {
		t.Errorf("released %d, %v", n, err)
	}
	h, err := c.Hosts.Get(ctx, Admin(), "host2")
	if err != nil || !h.Known || h.Endpoints != 0 || h.Away != (tables.AwayTime{Host: "host2", Seconds: 5, Evicted: true}) {
		t.Errorf("an evicted host: %+v, %v", h, err)
	}
	if n, _, err := c.Hosts.EvictHost(ctx, Admin(), "host2", false); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
}

// TestInfraEndpointsAreEvictedWithTheHost: the endpoint that a host has on an infra network is no reason to keep
// the host, and goes with it; a container's there is one.
func TestInfraEndpointsAreEvictedWithTheHost(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	if _, err := c.HostLeases.RenewHost(ctx, Admin(), reportOf("host2", "i")); err != nil {
		t.Fatal(err)
	}
	c.put(infraNetwork("default:stor", "10.77.0.0/16"))
	own := endpoint("stor", string(model.HostEndpoint("host2")), func(e *model.Endpoint) { e.Host = "host2" })
	c.create(own)
	c.create(endpoint("stor", "c1", func(e *model.Endpoint) { e.Host = "host2" }))
	c.ok(c.HostLeases.ReleaseHost(ctx, Admin(), "host2", "i"))
	c.fresh()
	evict := func() error { _, _, err := c.Hosts.EvictHost(ctx, Admin(), "host2", false); return err }
	c.refused(model.ErrInUse, "has 1 endpoint (default:stor:c1)", evict)
	if _, _, err := c.Endpoints.DeleteEndpoint(ctx, Admin(), model.EndpointKey{Network: own.Key.Network, ID: "c1"}); err != nil {
		t.Fatal(err)
	}
	c.fresh()
	c.ok(evict())
	if left := c.fresh().Endpoints.OfHost("host2"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestHostDrainsUntilUndrained: a host drains until it is undrained or removed; so do all endpoints there,
// and no others.
func TestHostDrainsUntilUndrained(t *testing.T) {
	c := base(t)
	ctx := testContext(t)
	reg := agentOf(c, "host2", "10.0.0.2")
	there := c.create(endpoint("v1", "there", func(e *model.Endpoint) { e.Host = "host2" }))
	here := c.create(endpoint("v1", "here"))
	drain := func(on bool) {
		t.Helper()
		h, _, err := c.Hosts.DrainHost(ctx, Admin(), "host2", on)
		if err != nil || h.Draining != on || h.Name != "host2" {
			t.Errorf("%+v, %v", h, err)
		}
		v := c.fresh()
		if v.Hosts.Drains(there) != on || v.Hosts.Drains(here) || v.Hosts.HostDrains("host2") != on {
			t.Errorf("there %v, here %v, want %v and false", v.Hosts.Drains(there), v.Hosts.Drains(here), on)
		}
	}
	drain(true)
	before := c.dump()
	drain(true)
	if after := c.dump(); len(after) != len(before) {
		t.Error("said again, and something has changed")
	}
	drain(false)
	drain(false)
	drain(true)
	c.refused(model.ErrNotFound, "nosuch", func() error { _, _, err := c.Hosts.DrainHost(ctx, Admin(), "nosuch", true); return err })
	c.ok(reg.Close())
	if _, _, err := c.Hosts.RemoveHost(ctx, Admin(), "host2", true); err != nil {
		t.Fatal(err)
	}
	if c.fresh().Hosts.HostDrains("host2") {
		t.Error("a host that was removed drains")
	}

	// Of a host that nothing else names any more the word is seen, and can be taken back.
	lone := c.create(endpoint("v1", "lone", func(e *model.Endpoint) { e.Host = "never" }))
	if _, _, err := c.Hosts.DrainHost(ctx, Admin(), "never", true); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Endpoints.deleteEndpoints(ctx, c.as(Admin()), []model.Endpoint{lone}, nil); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	all, err := c.Hosts.List(ctx, Admin())
	if i := slices.IndexFunc(all, func(h HostState) bool { return h.Name == "never" }); err != nil || i < 0 || !all[i].Draining {
		t.Errorf("hosts are %+v, %v", all, err)
	}
	if _, _, err := c.Hosts.RemoveHost(ctx, Admin(), "never", false); err != nil || c.fresh().Hosts.HostDrains("never") {
		t.Errorf("removed: %v, drains: %t", err, c.fresh().Hosts.HostDrains("never"))
	}
}
