package statemirror

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/memory"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// TestTenantsWithServicesOfKubernetesAreMirrored: every host leads to them, also in the first
// desired state.
func TestTenantsWithServicesOfKubernetesAreMirrored(t *testing.T) {
	st := memory.New()
	network := model.NetworkKey{Tenant: "blue", Name: "net"}
	put(t, st, func(tx store.Tx) error {
		return errors.Join(
			tables.Tenants.Put(tx, model.Tenant{Name: "blue", Router: 1}),
			tables.Networks.Put(tx, model.Network{Key: network, ID: 7, Encap: model.EncapVXLAN, Tag: 7}),
			tables.ClusterServices.Put(tx, model.Service{Key: model.ServiceKey{Tenant: model.DefaultTenant, Name: "ns/web"}, Owner: model.OwnerKubernetes, Network: network}),
		)
	})
	c := newCluster(t, st)
	follow(t, c)
	until(t, c, "the first desired state", func() error {
		if !c.Guard.entered() {
			return errors.New("not yet")
		}
		return nil
	})
	for _, p := range []Scope{TenantScope("blue"), EndpointsScope(network)} {
		until(t, c, p.String(), func() error {
			if m := c.mirrors.byScope[p]; m == nil || !m.ready {
				return errors.New("is not mirrored")
			}
			return nil
		})
	}
}

// Who shares networks with a tenant that is here is mirrored as long as that is so,
// and in the first desired state already.
func TestPartnersAreMirrored(t *testing.T) {
	st := memory.New()
	mode := func(m model.FwdMode) func(store.Tx) error {
		return func(tx store.Tx) error { return tables.Globals.Put(tx, model.Global{FwdMode: m}) }
	}
	blue, infra := TenantScope("blue"), TenantScope("infra")
	network := model.NetworkKey{Tenant: "infra", Name: "dns"}
	put(t, st, mode(model.FwdRouting))
	put(t, st, func(tx store.Tx) error {
		for _, x := range []model.Tenant{
			{Name: "blue", Router: 1, Shared: []model.NetworkKey{network}},
			{Name: "infra", Router: 2, Clients: []model.TenantName{"blue"}},
			{Name: "other", Router: 3},
		} {
			if err := tables.Tenants.Put(tx, x); err != nil {
				return err
			}
		}
		return tables.Networks.Put(tx, model.Network{Key: network, ID: 7, Encap: model.EncapVXLAN, Tag: 7})
	})
	c := newCluster(t, st)
	c.RequireTenant("blue")
	follow(t, c)
	first := false
	until(t, c, "the first desired state", func() error {
		if !c.Guard.entered() {
			return errors.New("not yet")
		}
		if m := c.mirrors.byScope[TenantScope("infra")]; !first && (m == nil || !m.ready) {
			t.Error("the first desired state comes before the tenant that it needs is known")
		}
		first = true
		return nil
	})
	mirrored := func(what string, want ...Scope) {
		t.Helper()
		until(t, c, what, func() error {
			if len(c.mirrors.byScope) != len(want)+1 {
				return fmt.Errorf("mirrored: %v", slices.Collect(maps.Keys(c.mirrors.byScope)))
			}
			for _, p := range want {
				if m := c.mirrors.byScope[p]; m == nil || !m.ready {
					return fmt.Errorf("not mirrored: %s", p)
				}
			}
			return nil
		})
	}
	now := time.Now()
	later := func() {
		now = now.Add(time.Hour)
		c.dropUnused(now, time.Minute)
	}
	later()
	mirrored("while it is needed", blue, infra, EndpointsScope(network))
	put(t, st, mode(model.FwdBridge))
	until(t, c, "mode bridge", func() error {
		if c.Settings.global == nil || c.Settings.global.FwdMode != model.FwdBridge {
			return fmt.Errorf("mode %v", c.Settings.global)
		}
		return nil
	})
	later()
	mirrored("in mode bridge", blue)
	put(t, st, mode(model.FwdRouting))
	mirrored("in mode routing again", blue, infra, EndpointsScope(network))
	put(t, st, func(tx store.Tx) error {
		if err := tables.Tenants.Put(tx, model.Tenant{Name: "blue", Router: 1}); err != nil {
			return err
		}
		return tables.Tenants.Put(tx, model.Tenant{Name: "infra", Router: 2})
	})
	until(t, c, "shared no longer", func() error {
		if c.Settings.tenants["blue"].Shares() {
			return errors.New("still")
		}
		return nil
	})
	later()
	mirrored("shared no longer", blue)
}
