package control

import (
	"context"
	"fmt"
	"reflect"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Tenants changes tenants, and those objects in them that neither have addresses nor are
// policies: groups, profiles and contracts. It has no state of its own.
type Tenants struct {
	commits     *Committer
	addressView *AddressView
	tenantView  *TenantView
}

var _ = register[model.TenantName](kind{name: "tenant", reference: sharedReference, usedBy: "tenants reach it"})

// ChangeTenant creates a tenant, with a router, or sets the default network of one
// and the networks of others that it reaches; what is not given (no default network,
// nil networks) stays as it is, and clearDefault takes the default network away. In a
// list, both are set after the networks, which they refer to.
func ChangeTenant(valid model.Valid[model.Tenant], clearDefault bool) Change {
	t := valid.Value()
	set := func(rank int, t model.Tenant, clearDefault bool) Change {
		return changeOf(rank, tables.Tenants, t.Name, valid, func(ctx context.Context, tx store.Tx, cl *allocator) error {
			return putTenant(ctx, tx, cl, t, clearDefault)
		})
	}
	first := set(rankTenant, model.Tenant{Name: t.Name}, clearDefault && t.DefaultNetwork == "")
	if t.DefaultNetwork != "" || t.Shared != nil {
		late := set(rankDefaultNetwork, t, false)
		first.deferred = &late
	}
	return first.of(ownTenant(t.Name))
}

func putTenant(ctx context.Context, tx store.Tx, cl *allocator, t model.Tenant, clearDefault bool) error {
	if err := tx.Prefetch(tables.Tenants.Key(t.Name)); err != nil {
		return err
	}
	old, err := tables.Tenants.Find(tx, t.Name)
	if err != nil {
		return err
	}
	next := old.Value
	if next.Name = t.Name; !old.Exists() {
		if next.Router, err = takeRouter(ctx, tx, cl, t.Name); err != nil {
			return err
		}
	}
	if t.DefaultNetwork != "" && t.DefaultNetwork != next.DefaultNetwork {
		k := model.NetworkKey{Tenant: t.Name, Name: t.DefaultNetwork}
		if _, err := tables.Networks.Get(tx, k); err != nil {
			return fmt.Errorf("defaultNetwork %q: %w", t.DefaultNetwork, err)
		}
	}
	if t.DefaultNetwork != "" || clearDefault {
		next.DefaultNetwork = t.DefaultNetwork
	}
	if t.Shared != nil {
		if err := setShared(tx, &next, t.Shared); err != nil {
			return err
		}
	}
	if old.Exists() && reflect.DeepEqual(old.Value, next) {
		return nil
	}
	return tables.Tenants.Put(tx, next)
}

// DeleteTenant deletes a tenant that holds nothing; the default tenant stays. Networks
// that it reached are shared with it no longer.
func DeleteTenant(k model.TenantName) Deletion {
	return inOne(fmt.Sprintf("delete tenant %q", k), func(tx store.Tx, a Actor) error {
		t, err := tables.Tenants.Get(tx, k)
		if err != nil {
			return err
		}
		if err := a.mayDelete(tx, ownTenant(k)); err != nil {
			return err
		}
		if k == model.DefaultTenant {
			return model.Errorf(model.ErrInUse, "the default tenant cannot be deleted")
		}
		var empty []*emptyCheck
		scopes := []string{tables.PendingScope}
		for _, kind := range kinds() {
			if kind.empty != nil {
				empty, scopes = append(empty, kind.empty), append(scopes, kind.empty.scope(k))
			}
		}
		if err := tx.PrefetchScopes(1, scopes...); err != nil {
			return err
		}
		for _, e := range empty {
			if err := e.check(tx, k); err != nil {
				return err
			}
		}
		if err := checkNothingPending(tx, k); err != nil {
			return err
		}
		if err := setShared(tx, &t, nil); err != nil {
			return err
		}
		tables.Tenants.Delete(tx, k)
		freeRouter(tx, t.Router)
		return nil
	})
}

// emptyCheck is that a tenant has no objects of a kind.
type emptyCheck struct {
	scope func(model.TenantName) string // that holds a tenant's
	// check fails with model.ErrInUse while there are some; the commit depends on there
	// being none.
	check func(store.Tx, model.TenantName) error
}

// none is that the scope of a tenant has no row.
func none[K comparable, V any](t *tables.Table[K, V], scope func(model.TenantName) string, nouns string, name func(V) string) *emptyCheck {
	return &emptyCheck{scope, func(tx store.Tx, k model.TenantName) error {
		v, any, err := t.Any(tx, scope(k))
		if err == nil && any {
			err = model.Errorf(model.ErrInUse, "it has %s, for one %q", nouns, name(v))
		}
		return err
	}}
}
