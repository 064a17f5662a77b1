package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	tenantRows = newRowsPart[model.TenantName, model.Tenant](nil, cmp.Compare[model.TenantName])

	_ = register(tenantRows, enterTenant, kind{name: "tenant"})
)

// ChangeTenant creates a tenant, with a router, or sets the default network of one; without
// default network it leaves an existing tenant as it is, or with clearDefault
// takes its default network away. In a list, the default network, which cannot
// be there before the tenant, is set after the networks.
func (c *Controller) ChangeTenant(valid model.Valid[model.Tenant], clearDefault bool) Change {
	t := valid.Value()
	set := func(rank int, t model.Tenant, clearDefault bool) Change {
		return changeOf(rank, tables.Tenants, t.Name, valid, func(ctx context.Context, tx store.Tx, cl *claim) error {
			return putTenant(ctx, tx, cl, t, clearDefault)
		})
	}
	first := set(rankTenant, model.Tenant{Name: t.Name}, clearDefault && t.DefaultNetwork == "")
	if t.DefaultNetwork != "" {
		late := set(rankDefaultNetwork, t, false)
		first.late = &late
	}
	return first
}

func putTenant(ctx context.Context, tx store.Tx, cl *claim, t model.Tenant, clearDefault bool) error {
	if err := tx.Prefetch(tables.Tenants.Key(t.Name)); err != nil {
		return err
	}
	old, err := tables.Tenants.Find(tx, t.Name)
	if err != nil {
		return err
	}
	if old.Exists() && (t.DefaultNetwork == "" && !clearDefault || t.DefaultNetwork == old.Value.DefaultNetwork) {
		return nil
	}
	if t.DefaultNetwork != "" {
		k := model.NetworkKey{Tenant: t.Name, Name: t.DefaultNetwork}
		if _, err := tables.Networks.Get(tx, k); err != nil {
			return fmt.Errorf("defaultNetwork %q: %w", t.DefaultNetwork, err)
		}
	}
	if t.Router = old.Value.Router; !old.Exists() {
		if t.Router, err = takeRouter(ctx, tx, cl, t.Name); err != nil {
			return err
		}
	}
	return tables.Tenants.Put(tx, t)
}

// DeleteTenant deletes a tenant that holds nothing; the default tenant stays.
func (c *Controller) DeleteTenant(ctx context.Context, k model.TenantName) error {
	_, err := c.update(ctx, fmt.Sprintf("delete tenant %q", k), func(tx store.Tx) error {
		t, err := tables.Tenants.Get(tx, k)
		if err != nil {
			return err
		}
		if k == model.DefaultTenant {
			return model.Errorf(model.ErrInUse, "the default tenant cannot be deleted")
		}
		for _, kind := range kinds() {
			if kind.empty == nil {
				continue
			}
			if err := kind.empty(tx, k); err != nil {
				return err
			}
		}
		tables.Tenants.Delete(tx, k)
		freeRouter(tx, t.Router)
		return nil
	})
	return err
}

// none builds a kind's empty: the scope of a tenant has no row, and the commit
// depends on its staying so.
func none[K comparable, V any](t *tables.Table[K, V], scope func(model.TenantName) string, nouns string, name func(V) string) func(store.Tx, model.TenantName) error {
	return func(tx store.Tx, k model.TenantName) error {
		v, any, err := t.Any(tx, scope(k))
		if err == nil && any {
			err = model.Errorf(model.ErrInUse, "it has %s, for one %q", nouns, name(v))
		}
		return err
	}
}

// Tenants returns all tenants.
func (v *View) Tenants() []model.Tenant { return tenantRows.list(v, "") }

// Tenant finds a tenant.
func (v *View) Tenant(k model.TenantName) (model.Tenant, bool) { return tenantRows.find(v, k) }
