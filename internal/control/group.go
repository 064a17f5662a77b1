package control

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
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
	name := store.NameKey{Tenant: g.Key.Tenant, Name: string(g.Key.Name)}
	ik, err := internKey(g.NetworkKey(), g.Key.Name, nil)
	if err != nil {
		return err
	}
	keys := []string{
		store.Tenants.Key(g.Key.Tenant), store.Groups.Key(g.Key), store.Networks.Key(g.NetworkKey()),
		store.Names.Key(name), store.InternedIdentities.Key(ik), store.GroupPools.Key(store.PoolsKey{Network: g.NetworkKey()}),
	}
	for _, r := range groupRefs(g) {
		keys = append(keys, r.key)
	}
	if err := tx.Prefetch(keys...); err != nil {
		return err
	}
	old, err := store.Groups.Find(tx, g.Key)
	if err != nil {
		return err
	}
	if old.Exists() {
		return changeGroup(tx, old.Value, g, clearTag)
	}
	if _, err := store.Tenants.Get(tx, g.Key.Tenant); err != nil {
		return err
	}
	n, err := store.Networks.Get(tx, g.NetworkKey())
	if err != nil {
		return err
	}
	if err := takeName(tx, name, "endpoint group"); err != nil {
		return err
	}
	if err := c.claimPool(tx, n, g); err != nil {
		return err
	}
	if err := refer(tx, store.TargetNetwork(n.Key), "group", g.Key.String()); err != nil {
		return err
	}
	if g.ID, err = c.intern(ctx, tx, cl, n.Key, g.Key.Name, nil); err != nil {
		return err
	}
	if err := attach(tx, g, model.Group{}); err != nil {
		return err
	}
	return store.Groups.Create(tx, g)
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
	return store.Groups.Put(tx, g)
}

// groupRef is something that a group names beside its network.
type groupRef struct {
	field, name string
	key         string // of its row
	target      store.Target
	get         func(store.Tx) error // reads it into the read set
}

func groupRefs(g model.Group) []groupRef {
	var out []groupRef
	for _, p := range g.Policies {
		k := model.PolicyKey{Tenant: g.Key.Tenant, Name: p}
		out = append(out, groupRef{"policies", string(p), store.Policies.Key(k), store.TargetPolicy(k), getter(store.Policies, k)})
	}
	if g.NetProfile != "" {
		k := model.NetProfileKey{Tenant: g.Key.Tenant, Name: g.NetProfile}
		out = append(out, groupRef{"netProfile", k.Name, store.NetProfiles.Key(k), store.TargetNetProfile(k), getter(store.NetProfiles, k)})
	}
	for _, e := range g.ExtContracts {
		k := model.ExtContractsKey{Tenant: g.Key.Tenant, Name: e}
		out = append(out, groupRef{"extContractsGrps", e, store.ExtContracts.Key(k), store.TargetExtContracts(k), getter(store.ExtContracts, k)})
	}
	return out
}

func getter[K comparable, V any](t *store.Table[K, V], k K) func(store.Tx) error {
	return func(tx store.Tx) error {
		_, err := t.Get(tx, k)
		return err
	}
}

// attach moves a group's references from what it named to what it names.
func attach(tx store.Tx, g, old model.Group) error {
	before, after := groupRefs(old), groupRefs(g)
	has := func(refs []groupRef, t store.Target) bool {
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
	row, err := store.GroupPools.Find(tx, store.PoolsKey{Network: n.Key})
	if err != nil {
		return err
	}
	pools := store.Pools{Network: n.Key, Groups: map[model.GroupName]model.AddrRange{g.Key.Name: g.Pool}}
	for name, pool := range row.Value.Groups {
		if !pool.Last.Less(g.Pool.First) && !g.Pool.Last.Less(pool.First) {
			return model.Errorf(model.ErrConflict, "ipPool %q: overlaps %s of endpoint group %q", g.Pool, pool, name)
		}
		pools.Groups[name] = pool
	}
	// Whoever takes an address has the row of pools in the read set; whoever took
	// one before is seen here.
	scope := store.AddressesOf(n.Key)
	if err := tx.Observe(scope); err != nil {
		return err
	}
	kvs, err := tx.Range(scope+commonPrefix(store.AddrName(g.Pool.First), store.AddrName(g.Pool.Last)), 0)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		a, err := store.Addresses.Decode(kv)
		if err != nil {
			return err
		}
		if g.Pool.Contains(a.Value.Addr) && !c.expired(a.Value) {
			return model.Errorf(model.ErrConflict, "ipPool %q: %s", g.Pool, ownerText(a.Value))
		}
	}
	return store.GroupPools.Put(tx, pools)
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
		g, err := store.Groups.Get(tx, k)
		if err != nil {
			return err
		}
		ik, err := internKey(g.NetworkKey(), k.Name, nil)
		if err != nil {
			return err
		}
		if err := unreferenced(tx, store.TargetGroup(k)); err != nil {
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
		unrefer(tx, store.TargetNetwork(g.NetworkKey()), "group", k.String())
		store.Groups.Delete(tx, k)
		store.Names.Delete(tx, store.NameKey{Tenant: k.Tenant, Name: string(k.Name)})
		store.References.DeleteScope(tx, store.TargetGroup(k).Scope())
		forget(tx, ik, g.ID)
		return nil
	})
	return err
}

func freePool(tx store.Tx, g model.Group) error {
	k := store.PoolsKey{Network: g.NetworkKey()}
	row, err := store.GroupPools.Find(tx, k)
	if err != nil {
		return err
	}
	left := store.Pools{Network: k.Network, Groups: map[model.GroupName]model.AddrRange{}}
	for name, pool := range row.Value.Groups {
		if name != g.Key.Name {
			left.Groups[name] = pool
		}
	}
	if len(left.Groups) == 0 {
		store.GroupPools.Delete(tx, k)
		return nil
	}
	return store.GroupPools.Put(tx, left)
}

// ownerText says who has an address.
func ownerText(a store.Address) string {
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
