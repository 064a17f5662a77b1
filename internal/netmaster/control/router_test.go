package control

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// router returns the router of a tenant.
func (c *harness) router(name model.TenantName) model.RouterID {
	c.t.Helper()
	t, ok := c.fresh().Tenants.Get(name)
	if !ok {
		c.t.Fatalf("there is no tenant %q", name)
	}
	return t.Router
}

// A tenant has a router of its own from when it is made until it is deleted,
// whatever is changed of it.
func TestTenantHasARouterUntilItIsDeleted(t *testing.T) {
	c := newCluster(t)
	c.put(model.Tenant{Name: "a"}, model.Tenant{Name: "b"})
	a, b := c.router("a"), c.router("b")
	if a == 0 || b == 0 || a == b {
		t.Fatalf("routers %d and %d", a, b)
	}
	c.put(network("a:n", "10.1.0.0/24"), model.Tenant{Name: "a", DefaultNetwork: "n"}, model.Tenant{Name: "a"})
	c.ok(c.remove(netKey("a:n")))
	if now := c.router("a"); now != a {
		t.Errorf("the router was %d and is %d", a, now)
	}
	checkInvariants(t, c)
	c.ok(c.remove(model.TenantName("a")))
	checkInvariants(t, c)
	c.put(model.Tenant{Name: "a"})
	if now := c.router("a"); now == 0 || now == a || now == b {
		t.Errorf("a new tenant has router %d at once, which was another's", now)
	}
}

// Tenants of before there were routers, and the default tenant, get one from the
// leader, whenever they come; from one that leads no more they get none.
func TestLeaderGivesRouters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		old := func(names ...model.TenantName) {
			t.Helper()
			if _, err := st.Update(t.Context(), func(tx store.Tx) error {
				for _, name := range names {
					if err := tables.Tenants.Put(tx, model.Tenant{Name: name}); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		old("a", "b")
		c := onStore(t, st)
		former := c.leader()
		c.fresh()
		fence := c.leader()
		if err := c.Tenants.GiveRouters(t.Context(), former); !errors.Is(err, store.ErrFenced) {
			t.Errorf("one that leads no more: %v", err)
		}
		if r := c.router("a"); r != 0 {
			t.Errorf("one that leads no more gave router %d", r)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Tenants.GiveRouters(ctx, fence) }()
		synctest.Wait()
		old("late")
		synctest.Wait()
		has := map[model.RouterID]bool{}
		for _, name := range []model.TenantName{model.DefaultTenant, "a", "b", "late"} {
			has[c.router(name)] = true
		}
		if len(has) != 4 || has[0] {
			t.Errorf("four tenants have the routers %v", has)
		}
		checkInvariants(t, c)
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
