package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// In forwarding mode routing hosts with BGP settings tell routers of the containers of VLAN
// networks. Of one address in two tenants routers would choose either, and hosts do not
// know each other's containers: so it is refused here. Networks that were there before
// netmaster refused them stay; hosts say so.

// announcesRoutes reports whether hosts speak BGP.
func announcesRoutes(tx store.Tx) (bool, error) {
	_, any, err := tables.Bgps.Any(tx, tables.BgpsScope)
	return any, err
}

// mayRoute reports whether hosts are in forwarding mode routing, or an unconfirmed change
// sets it. An unconfirmed change writes the settings' row again, so that transactions that
// have read it run again.
func mayRoute(tx store.Tx) (bool, error) {
	g, err := tables.Globals.Get(tx, tables.GlobalKey{})
	if err != nil || g.FwdMode == model.FwdRouting {
		return err == nil, err
	}
	kvs, err := tx.Range(tables.TrialsScope, 0)
	if err != nil {
		return false, err
	}
	for _, kv := range kvs {
		trial, err := tables.TrialsOf("").Decode(kv)
		if err != nil {
			return false, err
		}
		for _, r := range trial.Value.Rows {
			ch, err := r.Change()
			if g, ok := ch.Value.(model.Global); err != nil || ok && g.FwdMode == model.FwdRouting {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// vlans are the networks of encap vlan. The commit fails when there are others by then.
func (ns *Networks) vlans(ctx context.Context, tx store.Tx) ([]model.Network, error) {
	all, err := ns.present(ctx, tx, "")
	return slices.DeleteFunc(all, func(n model.Network) bool { return n.Encap != model.EncapVLAN }), err
}

// present are the networks of a tenant, or of all. The commit fails when there are others by
// then.
func (ns *Networks) present(ctx context.Context, tx store.Tx, t model.TenantName) ([]model.Network, error) {
	if err := tx.Observe(tables.NumbersOf(tables.NumberNetwork)); err != nil {
		return nil, err
	}
	if _, err := ns.commits.follow.Fresh(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(ns.networkView.List(t)), nil
}

// checkDisjoint refuses a new network that has an address in common with another tenant's, of
// which routers would be told too.
func (ns *Networks) checkDisjoint(ctx context.Context, s Scope, tx store.Tx, n model.Network) error {
	if n.Encap != model.EncapVLAN {
		return nil
	}
	if yes, err := mayRoute(tx); err != nil || !yes {
		return err
	}
	if told, err := announcesRoutes(tx); err != nil || !told {
		return err
	}
	all, err := ns.vlans(ctx, tx)
	if err != nil {
		return err
	}
	for _, o := range all {
		if p, q, common := overlapText(n, o); common {
			return s.describeCollision("subnet", p, fmt.Sprintf("overlaps %s of network %q, and hosts announce both tenants' containers by BGP ('netctl bgp ls'), so that routers would send packets of one to the other; choose another subnet, or encap vxlan", q, o.Key))
		}
	}
	return nil
}

// checkAllDisjoint refuses that hosts begin to tell of networks of two tenants that have an
// address in common.
func (ns *Networks) checkAllDisjoint(ctx context.Context, tx store.Tx) error {
	all, err := ns.vlans(ctx, tx)
	if err != nil {
		return err
	}
	for i, n := range all {
		for _, o := range all[i+1:] {
			if p, q, common := overlapText(n, o); common {
				return model.Errorf(model.ErrConflict, "networks %q (%s) and %q (%s) have addresses in common, and in forwarding mode routing hosts with BGP settings would announce both, so that routers send packets of one to the other; "+
					"create one of them again with another subnet, or with encap vxlan", n.Key, p, o.Key, q)
			}
		}
	}
	return nil
}

// overlapText tells which subnets of networks of two tenants overlap.
func overlapText(n, o model.Network) (p, q netip.Prefix, common bool) {
	if n.Key.Tenant == o.Key.Tenant {
		return p, q, false
	}
	for _, p := range subnetsOf(n) {
		for _, q := range subnetsOf(o) {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return p, q, false
}
