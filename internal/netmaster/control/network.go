package control

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Networks changes networks, and checks that their subnets overlap no others.
type Networks struct {
	commits      *Committer
	networkView  *NetworkView
	endpointView *EndpointView
	hostView     *HostView
	ownerView    *AddressOwnerView
	endpoints    *Endpoints
	surroundings func([]netip.Addr) model.Lifelines // see Options.Surroundings
}

var _ = register[model.NetworkKey](kind{
	name:  "network",
	empty: none(tables.Networks, tables.NetworksOf, "networks", func(x model.Network) string { return string(x.Key.Name) }),
})

func lessNetwork(a, b model.NetworkKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}

// ChangeNetwork creates a network: it takes its name and subnets, a tag of its
// encapsulation from the global ranges, a network id and an identity. Tag, ID
// and Identity of n are ignored. An existing network with equal fields stays as
// it is, and so with no ReqTag; with others it is model.ErrConflict, since networks are immutable.
func (ns *Networks) ChangeNetwork(valid model.Valid[model.Network]) Change {
	n := valid.Value()
	n.Tag, n.ID, n.Identity, n.ByTenant, n.Allowed = 0, 0, 0, false, false
	ch := changeOf(rankNetwork, tables.Networks, n.Key, valid, func(ctx context.Context, tx store.Tx, cl *allocator) error {
		return ns.putNetwork(ctx, tx, cl, n)
	})
	for _, p := range subnetsOf(n) { // creators of neighbouring subnets write these too
		ch.serialized = append(ch.serialized, tables.Subnets.Key(bucketOf(n.Key.Tenant, p)))
	}
	return ch.of(ownNetwork(n.Key))
}

func (ns *Networks) putNetwork(ctx context.Context, tx store.Tx, cl *allocator, n model.Network) error {
	name := tables.NameKey{Tenant: n.Key.Tenant, Name: string(n.Key.Name)}
	ik, err := internKey(model.IdentityRecord{Network: n.Key})
	if err != nil {
		return err
	}
	err = tx.Prefetch(append(subnetKeys(n.Key.Tenant, subnetsOf(n)),
		tables.Globals.Key(tables.GlobalKey{}), tables.Tenants.Key(n.Key.Tenant),
		tables.Networks.Key(n.Key), tables.Names.Key(name), tables.InternedIdentities.Key(ik), tables.ServiceRanges.Key(tables.ServiceRangesKey{}))...)
	if err != nil {
		return err
	}
	t, err := tables.Tenants.Get(tx, n.Key.Tenant)
	if err != nil {
		return err
	}
	old, err := tables.Networks.Find(tx, n.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return sameNetwork(old.Value, n)
	}
	if err := takeName(tx, name, "network"); err != nil {
		return err
	}
	if n.Subnet.IsValid() {
		g, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		if g.PvtSubnet.IsValid() && g.PvtSubnet.Overlaps(n.Subnet) {
			return model.Errorf(model.ErrConflict, "subnet %q: overlaps the cluster's private subnet %s, whose addresses each host uses for its containers; "+
				"choose another subnet, or, while there is no network, another private subnet ('netctl global set --private-subnet a.b.0.0/16')", n.Subnet, g.PvtSubnet)
		}
		if err := refuseServiceRanges(tx, "subnet", n.Subnet); err != nil {
			return err
		}
		if err := allocateSubnet(tx, n.Key, "subnet", n.Subnet); err != nil {
			return err
		}
	}
	if n.Subnet6.IsValid() {
		if model.PvtSubnet6.Overlaps(n.Subnet6) {
			return model.Errorf(model.ErrConflict, "ipv6Subnet %q: overlaps the private subnet %s, whose addresses each host uses for its containers; choose another subnet", n.Subnet6, model.PvtSubnet6)
		}
		if err := refuseServiceRanges(tx, "ipv6Subnet", n.Subnet6); err != nil {
			return err
		}
		if err := allocateSubnet(tx, n.Key, "ipv6Subnet", n.Subnet6); err != nil {
			return err
		}
	}
	if t.Shares() {
		if err := planNetwork(cl.actor.Scope(), tx, n); err != nil {
			return err
		}
	}
	if err := ns.checkHostAddresses(cl.actor.Scope(), tx, n); err != nil {
		return err
	}
	if err := checkHostRoutes(cl.actor, tx, &n); err != nil {
		return err
	}
	if n.Routed {
		if err := ns.checkRoutedSubnet(ctx, cl, tx, n); err != nil {
			return err
		}
	}
	if n.Encap == model.EncapVLAN && n.ByTenant {
		if err := ns.checkGateways(ctx, cl, tx, n); err != nil {
			return err
		}
	}
	if err := ns.checkDisjoint(ctx, cl.actor.Scope(), tx, n); err != nil {
		return err
	}
	if n.Tag, err = takeTag(ctx, tx, cl, n); err != nil {
		return err
	}
	id, err := cl.freeNumber(ctx, tx, tables.NumberNetwork, 1, 65535, n.Key.String())
	if err != nil {
		return err
	}
	n.ID = model.NetworkID(id)
	if err := tables.PutCursor(tx, tables.Cursor{Kind: tables.NumberNetwork, Last: id}); err != nil {
		return err
	}
	if n.Identity, err = intern(ctx, tx, cl, model.IdentityRecord{Network: n.Key}); err != nil {
		return err
	}
	if err := ns.enterInfra(ctx, cl, tx, n); err != nil {
		return err
	}
	return tables.Networks.Create(tx, n)
}

// sameNetwork checks that a request for an existing network asks for what is there.
func sameNetwork(old, n model.Network) (err error) {
	if n.ReqTag == 0 || n.ReqTag == old.Tag {
		n.ReqTag = old.ReqTag // 0: any tag; else a client that puts back what it got
	}
	for _, f := range []struct {
		name     string
		old, new any
	}{
		{"nwType", old.Type, n.Type},
		{"encap", old.Encap, n.Encap},
		{"pktTag", old.ReqTag, n.ReqTag},
		{"subnet", model.FormatSubnet4(old.Subnet, old.Range), model.FormatSubnet4(n.Subnet, n.Range)},
		{"gateway", old.Gateway, n.Gateway},
		{"ipv6Subnet", old.Subnet6, n.Subnet6},
		{"ipv6Gateway", old.Gateway6, n.Gateway6},
		{"cfgdTag", old.CfgdTag, n.CfgdTag},
		{"native", old.Routed, n.Routed},
	} {
		if f.old != f.new {
			err = joinRefusals(err, immutable(f.name, f.old, f.new))
		}
	}
	return err
}

// checkHostRoutes notes whether a network may change hosts' routes, or refuses it.
func checkHostRoutes(a Actor, tx store.Tx, n *model.Network) error {
	if n.ByTenant, n.Allowed = !a.admin, false; !n.ByTenant {
		return nil
	}
	if n.Type == model.NetworkInfra {
		return a.mayChangeHosts("nwType", string(n.Type), "an infra network")
	}
	g, err := tables.Globals.Get(tx, tables.GlobalKey{})
	if err != nil {
		return err
	}
	n.Allowed = true
	for _, p := range subnetsOf(*n) {
		n.Allowed = n.Allowed && g.TenantPrefixes.Contains(p)
	}
	if n.Routed && !n.Allowed {
		return a.mayChangeHosts("native", "true", "a native network outside of the cluster's tenantPrefixes")
	}
	return nil
}

// withinPrefixes refuses prefixes for tenants that leave out a network to which hosts have
// routes because a former list allowed it.
func (ns *Networks) withinPrefixes(ctx context.Context, tx store.Tx, allowed model.Prefixes) error {
	all, err := ns.present(ctx, tx, model.DefaultTenant) // hosts have routes to no other tenant's
	if err != nil {
		return err
	}
	for _, n := range all {
		for _, p := range subnetsOf(n) {
			if n.ByTenant && n.Allowed && !allowed.Contains(p) {
				return model.Errorf(model.ErrInUse, "tenantPrefixes: must contain subnet %s of network %q of a tenant administrator, to which hosts have routes: delete the network first", p, n.Key)
			}
		}
	}
	return nil
}

// takeName gives a name of the space that networks and groups of a tenant share.
func takeName(tx store.Tx, k tables.NameKey, kind string) error {
	row, err := tables.Names.Find(tx, k)
	if err != nil {
		return err
	}
	if row.Exists() {
		return model.Errorf(model.ErrConflict, "the name %q belongs to the %s of that name in tenant %q; networks and endpoint groups share one name space", k.Name, row.Value.Kind, k.Tenant)
	}
	return tables.Names.Create(tx, tables.Name{NameKey: k, Kind: kind})
}

func tagKind(e model.Encap) tables.NumberKind {
	if e == model.EncapVLAN {
		return tables.NumberVLAN
	}
	return tables.NumberVNI
}

// takeTag takes the tag asked for, or a free one.
func takeTag(ctx context.Context, tx store.Tx, cl *allocator, n model.Network) (uint32, error) {
	g, err := tables.Globals.Get(tx, tables.GlobalKey{})
	if err != nil {
		return 0, err
	}
	kind, field, within := tagKind(n.Encap), "vxlans", g.VXLANs
	if n.Encap == model.EncapVLAN {
		field, within = "vlans", g.VLANs
	}
	switch {
	case n.ReqTag == 0 && n.Encap == model.EncapVLAN:
		return cl.freeVLAN(ctx, tx, within, n.Key.String())
	case n.ReqTag == 0:
		return cl.freeNumber(ctx, tx, kind, within.Lo, within.Hi, n.Key.String())
	}
	if !within.Contains(n.ReqTag) {
		return 0, model.InvalidField("pktTag", n.ReqTag, fmt.Sprintf("must be within %s, which global sets as %s", within, field))
	}
	k := tables.NumberKey{Kind: kind, Number: n.ReqTag}
	row, err := tables.Numbers.Find(tx, k)
	if err != nil {
		return 0, err
	}
	if row.Exists() {
		return 0, model.Errorf(model.ErrConflict, "pktTag \"%d\": is used by %s", n.ReqTag, cl.actor.Scope().tagOwner(row.Value))
	}
	if n.Encap == model.EncapVLAN {
		if err := cl.checkVLAN(ctx, n.ReqTag); err != nil {
			return 0, err
		}
	}
	return n.ReqTag, tables.Numbers.Create(tx, tables.Number{NumberKey: k, Owner: n.Key.String()})
}

// DeleteNetwork deletes a network that no group, rule, service, endpoint or
// reserved address uses: otherwise model.ErrInUse. A tenant's default network stops
// being that.
func (ns *Networks) DeleteNetwork(k model.NetworkKey) Deletion {
	return Deletion{what: fmt.Sprintf("delete network %q", k), do: func(ctx context.Context, u *usecase) error {
		v, err := ns.commits.View(ctx)
		if err != nil {
			return err
		}
		if n, _ := v.Networks.Get(k); n.Type == model.NetworkInfra {
			return ns.deleteInfra(ctx, u, k)
		}
		return ns.removeNetwork(ctx, u, k)
	}}
}

func (ns *Networks) removeNetwork(ctx context.Context, u *usecase, k model.NetworkKey) error {
	_, err := u.update(ctx, fmt.Sprintf("delete network %q", k), func(tx store.Tx) error {
		ik, err := internKey(model.IdentityRecord{Network: k})
		if err != nil {
			return err
		}
		if err := tx.Prefetch(tables.Networks.Key(k), tables.Tenants.Key(k.Tenant), tables.InternedIdentities.Key(ik)); err != nil {
			return err
		}
		n, err := tables.Networks.Get(tx, k)
		if err != nil {
			return err
		}
		if err := u.actor.mayDelete(tx, ownNetwork(k)); err != nil {
			return err
		}
		if err := checkUnreferenced(u.actor.Scope(), tx, tables.TargetNetwork(k), tables.AddressesOf(k)); err != nil {
			return err
		}
		if err := ns.checkNoAddressInUse(tx, k); err != nil {
			return err
		}
		for _, p := range subnetsOf(n) {
			if err := freeSubnet(tx, k, p); err != nil {
				return err
			}
		}
		t, err := tables.Tenants.Find(tx, k.Tenant)
		if err != nil {
			return err
		}
		if t.Exists() && (t.Value.DefaultNetwork == k.Name || slices.Contains(t.Value.Infra, k.Name)) {
			t.Value.Infra = withoutInfra(t.Value.Infra, k.Name)
			if t.Value.DefaultNetwork == k.Name {
				t.Value.DefaultNetwork = ""
			}
			if err := tables.Tenants.Put(tx, t.Value); err != nil {
				return err
			}
		}
		if t.Value.Shares() {
			if err := unplanNetwork(tx, k); err != nil {
				return err
			}
		}
		tables.Networks.Delete(tx, k)
		tables.Names.Delete(tx, tables.NameKey{Tenant: k.Tenant, Name: string(k.Name)})
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tagKind(n.Encap), Number: n.Tag})
		tables.Numbers.Delete(tx, tables.NumberKey{Kind: tables.NumberNetwork, Number: uint32(n.ID)})
		tables.GroupPools.Delete(tx, tables.PoolsKey{Network: k})
		tables.Addresses.DeleteScope(tx, tables.AddressesOf(k)) // expired reservations
		tables.References.DeleteScope(tx, tables.TargetNetwork(k).Scope())
		forget(tx, ik, n.Identity)
		return nil
	})
	return err
}

// checkNoAddressInUse checks that no address of a network is in use. Every endpoint has one.
func (ns *Networks) checkNoAddressInUse(tx store.Tx, k model.NetworkKey) error {
	scope := tables.AddressesOf(k)
	if err := tx.Observe(scope); err != nil {
		return err
	}
	const enough = 64
	for _, limit := range []int{few, enough} {
		kvs, err := tx.Range(scope, limit)
		if err != nil {
			return err
		}
		if err := ns.checkReservationsExpired(kvs); err != nil || len(kvs) < limit {
			return err
		}
	}
	return model.Errorf(model.ErrInUse, "many of its addresses are reserved")
}

// checkReservationsExpired checks that addresses are reserved only, and no longer. Of endpoints it
// names a host's own one last: that goes by itself with the others.
func (ns *Networks) checkReservationsExpired(addresses []store.KV) error {
	var host error
	for _, kv := range addresses {
		row, err := tables.Addresses.Decode(kv)
		if err != nil {
			return err
		}
		a := row.Value
		if a.Service != "" {
			return model.Errorf(model.ErrInUse, "%s", ownerText(a))
		}
		if a.Reservation == nil {
			err := model.Errorf(model.ErrInUse, "it has active endpoints, for one %q", a.Endpoint)
			if !a.Endpoint.OfHost() {
				return err
			}
			host = err
			continue
		}
		if ns.commits.now().Before(a.Reservation.Expires) {
			return model.Errorf(model.ErrInUse, "its address %s is reserved", a.Addr)
		}
	}
	return host
}
