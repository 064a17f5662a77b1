package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// DeleteGlobal sets all settings back to their defaults, under the same rules
// as ChangeGlobal and only while there is no network (known fault 8).
func (c *Controller) DeleteGlobal(ctx context.Context) error {
	_, err := c.update(ctx, "delete global", func(tx store.Tx) error {
		old, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		if n, any, err := tables.Numbers.Any(tx, tables.NumbersOf(tables.NumberNetwork)); err != nil {
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
		n, any, err := tables.Numbers.Any(tx, tables.NumbersOf(tables.NumberNetwork))
		if err != nil {
			return err
		}
		if any {
			return model.Errorf(model.ErrInUse, "%s %q: cannot change from %q while there are networks, for one %s", f.name, f.new, f.old, n.Owner)
		}
	}
	if err := checkRange(tx, "vlans", tables.NumberVLAN, old.VLANs, g.VLANs); err != nil {
		return err
	}
	if err := checkRange(tx, "vxlans", tables.NumberVNI, old.VXLANs, g.VXLANs); err != nil {
		return err
	}
	return tables.Globals.Put(tx, g)
}

// checkRange refuses a range that leaves out an id in use.
func checkRange(tx store.Tx, field string, kind tables.NumberKind, old, want model.TagRange) error {
	if want.Lo <= old.Lo && want.Hi >= old.Hi {
		return nil
	}
	used, err := tables.Numbers.List(tx, tables.NumbersOf(kind))
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

func putTenant(tx store.Tx, t model.Tenant, clearDefault bool) error {
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
	return tables.Tenants.Put(tx, t)
}

// DeleteTenant deletes a tenant that holds nothing; the default tenant stays.
func (c *Controller) DeleteTenant(ctx context.Context, k model.TenantName) error {
	_, err := c.update(ctx, fmt.Sprintf("delete tenant %q", k), func(tx store.Tx) error {
		if _, err := tables.Tenants.Get(tx, k); err != nil {
			return err
		}
		if k == model.DefaultTenant {
			return model.Errorf(model.ErrInUse, "the default tenant cannot be deleted")
		}
		for _, empty := range []func(store.Tx) error{
			none(tables.Networks, tables.NetworksOf(k), "networks", func(n model.Network) string { return string(n.Key.Name) }),
			none(tables.Groups, tables.GroupsOf(k), "endpoint groups", func(g model.Group) string { return string(g.Key.Name) }),
			none(tables.Policies, tables.PoliciesOf(k), "policies", func(p model.Policy) string { return string(p.Key.Name) }),
			none(tables.NetProfiles, tables.NetProfilesOf(k), "net profiles", func(p model.NetProfile) string { return p.Key.Name }),
			none(tables.AppProfiles, tables.AppProfilesOf(k), "app profiles", func(p model.AppProfile) string { return p.Key.Name }),
			none(tables.LoadBalancers, tables.LoadBalancersOf(k), "load-balanced services", func(s model.Service) string { return s.Key.Name }),
			none(tables.ExtContracts, tables.ExtContractsOf(k), "groups of external contracts", func(e model.ExtContracts) string { return e.Key.Name }),
			none(tables.Volumes, tables.VolumesOf(k), "volumes", func(v model.Volume) string { return v.Key.Name }),
			none(tables.VolumeProfiles, tables.VolumeProfilesOf(k), "volume profiles", func(p model.VolumeProfile) string { return p.Key.Name }),
		} {
			if err := empty(tx); err != nil {
				return err
			}
		}
		tables.Tenants.Delete(tx, k)
		return nil
	})
	return err
}

// none checks that a scope of a tenant is empty, and makes the commit depend on
// its staying so.
func none[K comparable, V any](t *tables.Table[K, V], scope, nouns string, name func(V) string) func(store.Tx) error {
	return func(tx store.Tx) error {
		v, any, err := t.Any(tx, scope)
		if err == nil && any {
			err = model.Errorf(model.ErrInUse, "it has %s, for one %q", nouns, name(v))
		}
		return err
	}
}
