package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// PutGlobal changes the settings that are set in change (zero fields stay as
// they are). The ranges may change while every id in use stays inside; the
// others only while there is no network: model.ErrInUse.
func (c *Controller) PutGlobal(ctx context.Context, change model.Global) error {
	_, err := c.update(ctx, "update global", func(tx store.Tx) error {
		old, err := store.Globals.Get(tx, store.GlobalKey{})
		if err != nil {
			return err
		}
		return putGlobal(tx, old, old.Merge(change))
	})
	return err
}

// DeleteGlobal sets all settings back to their defaults, under the same rules
// as PutGlobal and only while there is no network (known fault 8).
func (c *Controller) DeleteGlobal(ctx context.Context) error {
	_, err := c.update(ctx, "delete global", func(tx store.Tx) error {
		old, err := store.Globals.Get(tx, store.GlobalKey{})
		if err != nil {
			return err
		}
		if n, any, err := store.Numbers.Any(tx, store.NumbersOf(store.NumberNetwork)); err != nil {
			return err
		} else if any {
			return model.Errorf(model.ErrInUse, "networks use the settings, for one %s", n.Owner)
		}
		return putGlobal(tx, old, model.DefaultGlobal())
	})
	return err
}

func putGlobal(tx store.Tx, old, g model.Global) error {
	if err := g.Validate(); err != nil {
		return err
	}
	if g == old {
		return nil
	}
	for _, f := range []struct{ name, old, new string }{
		{"networkInfraType", string(old.Infra), string(g.Infra)},
		{"fwdMode", string(old.FwdMode), string(g.FwdMode)},
		{"arpMode", string(old.ArpMode), string(g.ArpMode)},
		{"pvtSubnet", old.PvtSubnet.String(), g.PvtSubnet.String()},
	} {
		if f.old == f.new {
			continue
		}
		n, any, err := store.Numbers.Any(tx, store.NumbersOf(store.NumberNetwork))
		if err != nil {
			return err
		}
		if any {
			return model.Errorf(model.ErrInUse, "%s %q: cannot change from %q while there are networks, for one %s", f.name, f.new, f.old, n.Owner)
		}
	}
	if err := checkRange(tx, "vlans", store.NumberVLAN, old.VLANs, g.VLANs); err != nil {
		return err
	}
	if err := checkRange(tx, "vxlans", store.NumberVNI, old.VXLANs, g.VXLANs); err != nil {
		return err
	}
	return store.Globals.Put(tx, g)
}

// checkRange refuses a range that leaves out an id in use.
func checkRange(tx store.Tx, field string, kind store.NumberKind, old, want model.TagRange) error {
	if want.Lo <= old.Lo && want.Hi >= old.Hi {
		return nil
	}
	used, err := store.Numbers.List(tx, store.NumbersOf(kind))
	if err != nil {
		return err
	}
	for _, n := range used {
		if !want.Contains(n.Number) {
			return model.Errorf(model.ErrInUse, "%s %q: must hold every id in use, and %d is used by network %s", field, want, n.Number, n.Owner)
		}
	}
	return nil
}

// PutTenant creates a tenant, or sets the default network of one. Putting an
// existing tenant without default network changes nothing.
func (c *Controller) PutTenant(ctx context.Context, t model.Tenant) error {
	if err := t.Validate(); err != nil {
		return err
	}
	_, err := c.update(ctx, fmt.Sprintf("put tenant %q", t.Name), func(tx store.Tx) error {
		if err := tx.Prefetch(store.Tenants.Key(t.Name)); err != nil {
			return err
		}
		old, err := store.Tenants.Find(tx, t.Name)
		if err != nil {
			return err
		}
		if old.Exists() && (t.DefaultNetwork == "" || t.DefaultNetwork == old.Value.DefaultNetwork) {
			return nil
		}
		if t.DefaultNetwork != "" {
			k := model.NetworkKey{Tenant: t.Name, Name: t.DefaultNetwork}
			if _, err := store.Networks.Get(tx, k); err != nil {
				return fmt.Errorf("defaultNetwork %q: %w", t.DefaultNetwork, err)
			}
		}
		return store.Tenants.Put(tx, t)
	})
	return err
}

// DeleteTenant deletes a tenant that holds nothing; the default tenant stays.
func (c *Controller) DeleteTenant(ctx context.Context, k model.TenantName) error {
	_, err := c.update(ctx, fmt.Sprintf("delete tenant %q", k), func(tx store.Tx) error {
		if _, err := store.Tenants.Get(tx, k); err != nil {
			return err
		}
		if k == model.DefaultTenant {
			return model.Errorf(model.ErrInUse, "the default tenant cannot be deleted")
		}
		if n, any, err := store.Networks.Any(tx, store.NetworksOf(k)); err != nil {
			return err
		} else if any {
			return model.Errorf(model.ErrInUse, "it has networks, for one %q", n.Key.Name)
		}
		if g, any, err := store.Groups.Any(tx, store.GroupsOf(k)); err != nil {
			return err
		} else if any {
			return model.Errorf(model.ErrInUse, "it has endpoint groups, for one %q", g.Key.Name)
		}
		if p, any, err := store.Policies.Any(tx, store.PoliciesOf(k)); err != nil {
			return err
		} else if any {
			return model.Errorf(model.ErrInUse, "it has policies, for one %q", p.Key.Name)
		}
		store.Tenants.Delete(tx, k)
		return nil
	})
	return err
}
