package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// MaxGroupPolicies is how many policies one group may have, MaxGroupRefs how
// many policies and groups of external contracts together: each takes
// operations of the one transaction that a change of a group is.
const (
	MaxGroupPolicies = 8
	MaxGroupRefs     = 10
)

// checkedGroup returns a group that may be put, in the form in which it is kept.
func checkedGroup(g model.Group) (model.Group, error) {
	g.ID = 0
	g.Policies, g.ExtContracts = unique(g.Policies), unique(g.ExtContracts)
	if err := g.Validate(); err != nil {
		return g, err
	}
	if len(g.Policies) > MaxGroupPolicies {
		return g, model.InvalidField("policies", len(g.Policies), fmt.Sprintf("must be at most %d", MaxGroupPolicies))
	}
	if n := len(g.Policies) + len(g.ExtContracts); n > MaxGroupRefs {
		return g, model.InvalidField("extContractsGrps", len(g.ExtContracts), fmt.Sprintf("must be, together with policies, at most %d", MaxGroupRefs))
	}
	return g, nil
}

// unique drops repeated names and keeps the order.
func unique[T comparable](names []T) []T {
	var out []T
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (c *Controller) putGroup(ctx context.Context, tx store.Tx, cl *claim, g model.Group, clearTag bool) error {
	name := tables.NameKey{Tenant: g.Key.Tenant, Name: string(g.Key.Name)}
	ik, err := internKey(g.NetworkKey(), g.Key.Name, nil)
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
	if err := c.claimPool(tx, n, g); err != nil {
		return err
	}
	if err := refer(tx, tables.TargetNetwork(n.Key), "group", g.Key.String()); err != nil {
		return err
	}
	if g.ID, err = c.intern(ctx, tx, cl, n.Key, g.Key.Name, nil); err != nil {
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
		bad = also(bad, immutable("networkName", old.Network, g.Network))
	}
	if g.Pool.IsValid() && g.Pool != old.Pool {
		bad = also(bad, immutable("ipPool", old.Pool, g.Pool))
	}
	if bad != nil {
		return bad
	}
	g.Pool, g.ID = old.Pool, old.ID
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
		out = append(out, groupRef{"policies", string(p), tables.Policies.Key(k), tables.TargetPolicy(k), getter(tables.Policies, k)})
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
	for _, r := range after {
		if has(before, r.target) {
			continue
		}
		if err := r.get(tx); err != nil {
			return fmt.Errorf("%s %q: %w", r.field, r.name, err)
		}
		if err := refer(tx, r.target, "group", g.Key.String()); err != nil {
			return err
		}
	}
	for _, r := range before {
		if !has(after, r.target) {
			unrefer(tx, r.target, "group", g.Key.String())
		}
	}
	return nil
}

// claimPool keeps a group's pool for the group: it must fit the network, and
// neither another pool nor anybody's address may lie in it.
func (c *Controller) claimPool(tx store.Tx, n model.Network, g model.Group) error {
	if !g.Pool.IsValid() {
		return nil
	}
	if err := n.CheckPool(g.Pool); err != nil {
		return err
	}
	row, err := tables.GroupPools.Find(tx, tables.PoolsKey{Network: n.Key})
	if err != nil {
		return err
	}
	pools := tables.Pools{Network: n.Key, Groups: map[model.GroupName]model.AddrRange{g.Key.Name: g.Pool}}
	for name, pool := range row.Value.Groups {
		if !pool.Last.Less(g.Pool.First) && !g.Pool.Last.Less(pool.First) {
			return model.Errorf(model.ErrConflict, "ipPool %q: overlaps %s of endpoint group %q", g.Pool, pool, name)
		}
		pools.Groups[name] = pool
	}
	// Whoever takes an address has the row of pools in the read set; whoever took
	// one before is seen here.
	scope := tables.AddressesOf(n.Key)
	if err := tx.Observe(scope); err != nil {
		return err
	}
	kvs, err := tx.Range(scope+commonPrefix(tables.AddrName(g.Pool.First), tables.AddrName(g.Pool.Last)), 0)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		a, err := tables.Addresses.Decode(kv)
		if err != nil {
			return err
		}
		if g.Pool.Contains(a.Value.Addr) && !c.expired(a.Value) {
			return model.Errorf(model.ErrConflict, "ipPool %q: %s", g.Pool, ownerText(a.Value))
		}
	}
	return tables.GroupPools.Put(tx, pools)
}

func commonPrefix(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return a[:i]
}

// DeleteGroup deletes a group that has no endpoints and that neither a rule nor
// an app profile names: otherwise model.ErrInUse (known fault 13).
func (c *Controller) DeleteGroup(ctx context.Context, k model.GroupKey) error {
	_, err := c.update(ctx, fmt.Sprintf("delete endpoint group %q", k), func(tx store.Tx) error {
		g, err := tables.Groups.Get(tx, k)
		if err != nil {
			return err
		}
		ik, err := internKey(g.NetworkKey(), k.Name, nil)
		if err != nil {
			return err
		}
		if err := unreferenced(tx, tables.TargetGroup(k)); err != nil {
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
		unrefer(tx, tables.TargetNetwork(g.NetworkKey()), "group", k.String())
		tables.Groups.Delete(tx, k)
		tables.Names.Delete(tx, tables.NameKey{Tenant: k.Tenant, Name: string(k.Name)})
		tables.References.DeleteScope(tx, tables.TargetGroup(k).Scope())
		forget(tx, ik, g.ID)
		return nil
	})
	return err
}

func freePool(tx store.Tx, g model.Group) error {
	k := tables.PoolsKey{Network: g.NetworkKey()}
	row, err := tables.GroupPools.Find(tx, k)
	if err != nil {
		return err
	}
	left := tables.Pools{Network: k.Network, Groups: map[model.GroupName]model.AddrRange{}}
	for name, pool := range row.Value.Groups {
		if name != g.Key.Name {
			left.Groups[name] = pool
		}
	}
	if len(left.Groups) == 0 {
		tables.GroupPools.Delete(tx, k)
		return nil
	}
	return tables.GroupPools.Put(tx, left)
}

// ownerText says who has an address.
func ownerText(a tables.Address) string {
	switch {
	case a.Service != "":
		return fmt.Sprintf("%s is the address of load-balanced service %q", a.Addr, a.Service)
	case a.Reservation == nil:
		return fmt.Sprintf("%s is used by endpoint %q", a.Addr, a.Endpoint)
	}
	by := strings.TrimSpace(strings.Join([]string{string(a.Reservation.Host), a.Reservation.Requester}, " "))
	if by != "" {
		by = " for " + by
	}
	return fmt.Sprintf("%s is reserved%s", a.Addr, by)
}

// inOtherPool returns the group other than g whose pool holds an address.
func inOtherPool(pools map[model.GroupName]model.AddrRange, g model.GroupName, a netip.Addr) (model.GroupName, bool) {
	for name, pool := range pools {
		if name != g && pool.Contains(a) {
			return name, true
		}
	}
	return "", false
}
