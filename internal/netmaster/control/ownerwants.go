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

// expectedRow is a row of allocations, or an entry of one, that an object has to have.
type expectedRow struct {
	key, entry string // of the row, and in it; "" = the row itself
	what       string // for people
	// have reports whether the row's value gives the object what it wants.
	have func(value any) bool
	// put writes the allocation; it is called when the row lacks it, and no other owner has
	// a right to it.
	put func(ctx context.Context, tx store.Tx, cl *allocator) error
}

// at names the row or entry.
func (w expectedRow) at() ownedAt { return ownedAt{w.key, w.entry} }

type ownedAt struct{ key, entry string }

func wantRow[K comparable, V any](t *tables.Table[K, V], v V, same func(V) bool) expectedRow {
	k := t.KeyOf(v)
	return expectedRow{
		key: t.Key(k), what: t.Noun() + " " + t.Show(k),
		have: func(value any) bool {
			x, ok := value.(V)
			return ok && same(x)
		},
		put: func(_ context.Context, tx store.Tx, _ *allocator) error { return t.Put(tx, v) },
	}
}

func wantReference(t tables.Target, kind, from string) expectedRow {
	w := wantRow(tables.References, tables.Reference{RefKey: tables.RefKey{Target: t, Kind: kind, From: from}}, func(tables.Reference) bool { return true })
	w.what = fmt.Sprintf("reference of %s %q to %s %q", kind, from, t.Kind, string(t.Tenant)+":"+t.Name)
	return w
}

func wantNumber(kind tables.NumberKind, x uint32, owner string, same func(tables.Number) bool) expectedRow {
	return wantRow(tables.Numbers, tables.Number{NumberKey: tables.NumberKey{Kind: kind, Number: x}, Owner: owner}, same)
}

func wantName(t model.TenantName, name, kind string) expectedRow {
	return wantRow(tables.Names, tables.Name{NameKey: tables.NameKey{Tenant: t, Name: name}, Kind: kind}, func(n tables.Name) bool { return n.Kind == kind })
}

// wantIdentity is the record of an identity whose contents are known, and all that the
// record wants.
func wantIdentity(of model.IdentityRecord, id model.Identity) []expectedRow {
	if id == 0 { // of before there were such
		return nil
	}
	of.ID = id
	return append(wantsOfIdentity(of), wantRow(tables.Identities, of, func(r model.IdentityRecord) bool { return r.Network == of.Network && r.Group == of.Group }))
}

// expectedRows lists what an object, which is a row of intent, has to have beside itself.
func expectedRows(o any) []expectedRow {
	switch o := o.(type) {
	case model.Tenant:
		return wantsOfTenant(o)
	case model.Network:
		return wantsOfNetwork(o)
	case model.Group:
		return wantsOfGroup(o)
	case model.Endpoint:
		return wantsOfEndpoint(o)
	case model.Service:
		if o.Owner == model.OwnerKubernetes { // its addresses are Kubernetes' own
			return nil
		}
		out := []expectedRow{wantReference(tables.TargetNetwork(o.Network), "service", o.Key.String())}
		for _, a := range o.Addrs {
			out = append(out, wantRow(tables.Addresses, tables.Address{AddressKey: tables.AddressKey{Network: o.Network, Addr: a}, Service: o.Key.Name},
				func(x tables.Address) bool { return x.Service == o.Key.Name }))
		}
		return out
	case model.IdentityRecord:
		return wantsOfIdentity(o)
	case model.Policy:
		return referencesTo(policyTargets(o), "policy", o.Key.String())
	case model.PolicyRule:
		return referencesTo(ruleTargets(o), ruleReference, o.Key.String())
	case tables.StagedRule:
		if o.Rule != nil {
			return referencesTo(ruleTargets(*o.Rule), ruleReference, o.Key.String())
		}
	case model.AppProfile:
		var out []expectedRow
		for _, g := range o.Groups {
			out = append(out, wantReference(tables.TargetGroup(model.GroupKey{Tenant: o.Key.Tenant, Name: g}), "appprofile", o.Key.String()))
		}
		return out
	}
	return nil
}

func referencesTo(targets []policyTarget, kind, from string) (out []expectedRow) {
	for _, t := range targets {
		out = append(out, wantReference(t.target, kind, from))
	}
	return out
}

func wantsOfTenant(t model.Tenant) (out []expectedRow) {
	if t.Router != 0 {
		out = append(out, wantNumber(tables.NumberRouter, uint32(t.Router), string(t.Name), func(n tables.Number) bool { return n.Owner == string(t.Name) }))
	}
	for _, k := range t.Shared {
		out = append(out, wantReference(tables.TargetNetwork(k), sharedReference, string(t.Name)))
	}
	return out
}

func wantsOfNetwork(n model.Network) []expectedRow {
	key := n.Key.String()
	mine := func(x tables.Number) bool { return x.Owner == key }
	out := []expectedRow{
		wantName(n.Key.Tenant, string(n.Key.Name), "network"),
		wantNumber(tagKind(n.Encap), n.Tag, key, mine),
		wantNumber(tables.NumberNetwork, uint32(n.ID), key, mine),
	}
	out = append(out, wantIdentity(model.IdentityRecord{Network: n.Key}, n.Identity)...)
	for _, p := range subnetsOf(n) {
		out = append(out, wantSubnet(n.Key, p))
	}
	return out
}

// wantSubnet is the entry of a subnet in its tenant's blocks.
func wantSubnet(n model.NetworkKey, p netip.Prefix) expectedRow {
	return expectedRow{
		key: tables.Subnets.Key(bucketOf(n.Tenant, p)), entry: p.String(), what: fmt.Sprintf("subnet %s of tenant %s", p, n.Tenant),
		have: func(value any) bool {
			b, ok := value.(tables.SubnetBucket)
			return ok && b.Subnets[p.String()] == n.Name
		},
		put: func(_ context.Context, tx store.Tx, _ *allocator) error { return allocateSubnet(tx, n, "subnet", p) },
	}
}

func wantsOfGroup(g model.Group) []expectedRow {
	out := []expectedRow{
		wantName(g.Key.Tenant, string(g.Key.Name), "endpoint group"),
		wantReference(tables.TargetNetwork(g.NetworkKey()), "group", g.Key.String()),
	}
	out = append(out, wantIdentity(model.IdentityRecord{Network: g.NetworkKey(), Group: g.Key.Name}, g.ID)...)
	out = append(out, wantsOfSegment(g)...)
	for _, r := range groupRefs(g) {
		out = append(out, wantReference(r.target, "group", g.Key.String()))
	}
	if g.Pool.IsValid() {
		out = append(out, expectedRow{
			key: tables.GroupPools.Key(tables.PoolsKey{Network: g.NetworkKey()}), entry: string(g.Key.Name), what: fmt.Sprintf("address pool %s of network %s", g.Pool, g.NetworkKey()),
			have: func(value any) bool {
				p, ok := value.(tables.Pools)
				return ok && p.Groups[g.Key.Name] == g.Pool
			},
			put: func(_ context.Context, tx store.Tx, _ *allocator) error { return putPool(tx, g) },
		})
	}
	return out
}

// putPool enters a group's pool in the row of its network's, unless that overlaps
// another one.
func putPool(tx store.Tx, g model.Group) error {
	k := tables.PoolsKey{Network: g.NetworkKey()}
	row, err := tables.GroupPools.Find(tx, k)
	if err != nil {
		return err
	}
	pools := tables.Pools{Network: k.Network, Groups: map[model.GroupName]model.AddrRange{g.Key.Name: g.Pool}}
	for name, pool := range row.Value.Groups {
		switch {
		case name == g.Key.Name:
		case !pool.Last.Less(g.Pool.First) && !g.Pool.Last.Less(pool.First):
			return model.Errorf(model.ErrConflict, "it overlaps %s of endpoint group %q", pool, name)
		default:
			pools.Groups[name] = pool
		}
	}
	return tables.GroupPools.Put(tx, pools)
}

func wantsOfEndpoint(e model.Endpoint) (out []expectedRow) {
	for _, a := range []netip.Addr{e.IPv4, e.IPv6} {
		if a.IsValid() {
			out = append(out, wantRow(tables.Addresses, tables.Address{AddressKey: tables.AddressKey{Network: e.Key.Network, Addr: a}, Endpoint: e.Key.ID, Group: e.Group},
				func(x tables.Address) bool { return x.Endpoint == e.Key.ID && x.Reservation == nil }))
		}
	}
	if !e.MAC.Derived() || !e.IPv4.IsValid() {
		out = append(out, wantRow(tables.ChosenMACs, tables.MACOwner{MACKey: tables.MACKey{Network: e.Key.Network, MAC: e.MAC}, Endpoint: e.Key.ID},
			func(o tables.MACOwner) bool { return o.Endpoint == e.Key.ID }))
	}
	if e.Group != "" {
		out = append(out, wantReference(tables.TargetGroup(model.GroupKey{Tenant: e.Key.Network.Tenant, Name: e.Group}), "endpoint", e.Key.String()))
	}
	if e.Identity != 0 {
		k := tables.IdentityKey{Tenant: e.Key.Network.Tenant, ID: e.Identity}
		out = append(out, expectedRow{
			key: tables.Identities.Key(k), what: "identity " + tables.Identities.Show(k),
			have: func(value any) bool {
				r, ok := value.(model.IdentityRecord)
				return ok && r.Network == e.Key.Network && r.Group == e.Group
			},
			put: func(ctx context.Context, tx store.Tx, cl *allocator) error {
				n, err := tables.Networks.Get(tx, e.Key.Network)
				if err != nil {
					return err
				}
				again := e
				if again.Identity, err = identify(ctx, tx, cl, n, e); err != nil || again.Identity == e.Identity {
					return err
				}
				return tables.Endpoints.Put(tx, again)
			},
		})
	}
	return out
}

// wantsOfIdentity is how an identity is found by its contents, and its number.
func wantsOfIdentity(r model.IdentityRecord) []expectedRow {
	k, err := internKey(r)
	if err != nil {
		return nil
	}
	owner := r.Network.String()
	if r.Group != "" {
		owner += ":" + string(r.Group)
	}
	content := wantRow(tables.InternedIdentities, tables.Interned{InternKey: k, ID: r.ID}, func(i tables.Interned) bool { return i.ID == r.ID })
	content.what = contentName(r.Network.Tenant, r.ID)
	return []expectedRow{
		content,
		wantNumber(tables.NumberIdentity, uint32(r.ID), owner, func(n tables.Number) bool { return tenantOfOwner(n.Owner) == r.Network.Tenant }),
	}
}

// requiredObjects says which other objects an object names that must be there for it to mean
// anything, by their rows' keys, with what they are.
func requiredObjects(o any) map[string]string {
	out := map[string]string{}
	tenant := func(t model.TenantName) { out[tables.Tenants.Key(t)] = "tenant " + string(t) }
	network := func(k model.NetworkKey) { out[tables.Networks.Key(k)] = "network " + k.String() }
	switch o := o.(type) {
	case model.Network:
		tenant(o.Key.Tenant)
	case model.Group:
		tenant(o.Key.Tenant)
		network(o.NetworkKey())
		for _, r := range groupRefs(o) {
			out[r.key] = r.target.Kind + " " + string(r.target.Tenant) + ":" + r.target.Name
		}
	case model.Endpoint:
		network(o.Key.Network)
		if o.Group != "" {
			k := model.GroupKey{Tenant: o.Key.Network.Tenant, Name: o.Group}
			out[tables.Groups.Key(k)] = "endpoint group " + k.String()
		}
	case model.Service:
		if o.Owner == model.OwnerKubernetes { // netmaster's copy follows Kubernetes, whatever is there
			break
		}
		tenant(o.Key.Tenant)
		network(o.Network)
	case model.Policy:
		tenant(o.Key.Tenant)
	case model.PolicyRule:
		out[tables.Policies.Key(o.Key.PolicyKey())] = "policy " + o.Key.PolicyKey().String()
	case model.AppProfile:
		tenant(o.Key.Tenant)
		for _, g := range slices.Sorted(slices.Values(o.Groups)) {
			k := model.GroupKey{Tenant: o.Key.Tenant, Name: g}
			out[tables.Groups.Key(k)] = "endpoint group " + k.String()
		}
	}
	return out
}

func contentName(t model.TenantName, id model.Identity) string {
	return fmt.Sprintf("content of identity %d of tenant %s", id, t)
}
