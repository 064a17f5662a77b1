package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.GroupKey](kind{
	name:      "endpointGroup",
	empty:     none(tables.Groups, tables.GroupsOf, "endpoint groups", func(x model.Group) string { return string(x.Key.Name) }),
	reference: "group", usedBy: "it is used by endpoint groups",
})

func lessGroup(a, b model.GroupKey) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
}

// ChangeGroup creates a group, or changes the policies, the net profile, the
// external contracts and the cfgdTag of one, whether or not it has endpoints.
// ID, VLAN and Segment of g are ignored. The network and the pool of an existing group cannot change:
// model.ErrConflict; an empty pool means "as it is", and so does an empty
// cfgdTag without clearTag. Policies that together would not fit a host are
// model.ErrExhausted.
func (ts *Tenants) ChangeGroup(valid model.Valid[model.Group], clearTag bool) Change {
	g := valid.Value()
	g.ID, g.VLAN, g.Segment = 0, 0, 0
	ch := changeOf(rankGroup, tables.Groups, g.Key, valid, func(ctx context.Context, tx store.Tx, cl *allocator) error {
		return ts.putGroup(ctx, tx, cl, g, clearTag)
	})
	ch.group = &g
	if g.Pool.IsValid() { // pools of one network share a row
		ch.serialized = []string{tables.GroupPools.Key(tables.PoolsKey{Network: g.NetworkKey()})}
	}
	return ch.of(ownGroup(g.Key))
}

func (ts *Tenants) putGroup(ctx context.Context, tx store.Tx, cl *allocator, g model.Group, clearTag bool) error {
	name := tables.NameKey{Tenant: g.Key.Tenant, Name: string(g.Key.Name)}
	ik, err := internKey(model.IdentityRecord{Network: g.NetworkKey(), Group: g.Key.Name})
	if err != nil {
		return err
	}
	keys := []string{
		tables.Tenants.Key(g.Key.Tenant), tables.Groups.Key(g.Key), tables.Networks.Key(g.NetworkKey()),
		tables.Names.Key(name), tables.InternedIdentities.Key(ik), tables.GroupPools.Key(tables.PoolsKey{Network: g.NetworkKey()}),
	}
	for _, r := range groupRefs(g) {
		keys = append(keys, r.key)
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	old, err := tables.Groups.Find(tx, g.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return changeGroup(tx, old.Value, g, clearTag)
	}
	if _, err := tables.Tenants.Get(tx, g.Key.Tenant); err != nil {
		return err
	}
	n, err := tables.Networks.Get(tx, g.NetworkKey())
	if err != nil {
		return err
	}
	if err := takeName(tx, name, "endpoint group"); err != nil {
		return err
	}
	if err := ts.allocatePool(tx, n, g); err != nil {
		return err
	}
	if err := addReference(tx, tables.TargetNetwork(n.Key), "group", g.Key.String()); err != nil {
		return err
	}
	if g.ID, err = intern(ctx, tx, cl, model.IdentityRecord{Network: n.Key, Group: g.Key.Name}); err != nil {
		return err
	}
	if err := takeSegment(ctx, tx, cl, n, &g); err != nil {
		return err
	}
	if err := attach(tx, g, model.Group{}); err != nil {
		return err
	}
	return tables.Groups.Create(tx, g)
}

func changeGroup(tx store.Tx, old, g model.Group, clearTag bool) error {
	var bad error
	if g.Network != old.Network {
		bad = joinRefusals(bad, immutable("networkName", old.Network, g.Network))
	}
	if g.Pool.IsValid() && g.Pool != old.Pool {
		bad = joinRefusals(bad, immutable("ipPool", old.Pool, g.Pool))
	}
	if bad != nil {
		return bad
	}
	g.Pool, g.ID, g.Object = old.Pool, old.ID, old.Object
	g.VLAN, g.Segment = old.VLAN, old.Segment
	if g.CfgdTag == "" && !clearTag {
		g.CfgdTag = old.CfgdTag
	}
	if slices.Equal(g.Policies, old.Policies) && g.NetProfile == old.NetProfile &&
		slices.Equal(g.ExtContracts, old.ExtContracts) && g.CfgdTag == old.CfgdTag {
		return nil
	}
	if err := attach(tx, g, old); err != nil {
		return err
	}
	return tables.Groups.Put(tx, g)
}

// groupRef is something that a group names beside its network.
type groupRef struct {
	field, name string
	key         string // of its row
	target      tables.Target
	get         func(store.Tx) error // reads it into the read set
}

func groupRefs(g model.Group) []groupRef {
	var out []groupRef
	for _, p := range g.Policies {
		k := model.PolicyKey{Tenant: g.Key.Tenant, Name: p}
		out = append(out, groupRef{"policies", string(p), tables.Policies.Key(k), tables.TargetPolicy(k), getAttached(k)})
	}
	if g.NetProfile != "" {
		k := model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}
		out = append(out, groupRef{"netProfile", k.Name, tables.NetProfiles.Key(k), tables.TargetNetProfile(k), getter(tables.NetProfiles, k)})
	}
	for _, e := range g.ExtContracts {
		k := model.ExtContractsKey{Tenant: g.Key.Tenant, Name: e}
		out = append(out, groupRef{"extContractsGrps", e, tables.ExtContracts.Key(k), tables.TargetExtContracts(k), getter(tables.ExtContracts, k)})
	}
	return out
}

// getAttached reads a policy that groups may name.
func getAttached(k model.PolicyKey) func(store.Tx) error {
	return func(tx store.Tx) error {
		p, err := tables.Policies.Get(tx, k)
		if err == nil && !p.Attached {
			err = model.Errorf(model.ErrInvalid, "policy %q is a %s policy, which selects its endpoints itself", k, p.Kind)
		}
		return err
	}
}

func getter[K comparable, V any](t *tables.Table[K, V], k K) func(store.Tx) error {
	return func(tx store.Tx) error {
		_, err := t.Get(tx, k)
		return err
	}
}

// attach moves a group's references from what it named to what it names.
func attach(tx store.Tx, g, old model.Group) error {
	before, after := groupRefs(old), groupRefs(g)
	has := func(refs []groupRef, t tables.Target) bool {
		return slices.ContainsFunc(refs, func(r groupRef) bool { return r.target == t })
	}
	added := slices.DeleteFunc(slices.Clone(after), func(r groupRef) bool { return has(before, r.target) })
	var how []tables.WriteOption
	if len(added) >= maxListedRefs {
		tx.Touch(tables.GroupRefs(g.Key.Tenant))
		how = append(how, tables.Untouched())
	}
	for _, r := range added {
		if err := r.get(tx); err != nil {
			return fmt.Errorf("%s %q: %w", r.field, r.name, err)
		}
		if err := addReference(tx, r.target, "group", g.Key.String(), how...); err != nil {
			return err
		}
	}
	for _, r := range before {
		if !has(after, r.target) {
			removeReference(tx, r.target, "group", g.Key.String())
		}
	}
	return nil
}

// DeleteGroup deletes a group that has no endpoints and that neither a rule nor
// an app profile names: otherwise model.ErrInUse (known fault 13).
func DeleteGroup(k model.GroupKey) Deletion {
	return inOne(fmt.Sprintf("delete endpoint group %q", k), func(tx store.Tx, a Actor) error {
		g, err := tables.Groups.Get(tx, k)
		if err != nil {
			return err
		}
		ik, err := internKey(model.IdentityRecord{Network: g.NetworkKey(), Group: k.Name})
		if err != nil {
			return err
		}
		if err := a.mayDelete(tx, ownGroup(k)); err != nil {
			return err
		}
		if err := checkUnreferenced(a.Scope(), tx, tables.TargetGroup(k)); err != nil {
			return err
		}
		if g.Pool.IsValid() {
			if err := freePool(tx, g); err != nil {
				return err
			}
		}
		if err := attach(tx, model.Group{Key: k}, g); err != nil {
			return err
		}
		removeReference(tx, tables.TargetNetwork(g.NetworkKey()), "group", k.String())
		freeSegment(tx, g)
		tables.Groups.Delete(tx, k)
		tables.Names.Delete(tx, tables.NameKey{Tenant: k.Tenant, Name: string(k.Name)})
		tables.References.DeleteScope(tx, tables.TargetGroup(k).Scope())
		forget(tx, ik, g.ID)
		return nil
	})
}
