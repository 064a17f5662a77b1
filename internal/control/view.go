package control

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/ipam"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// View is the mirrored state of the cluster with its indexes: what reads are
// answered from and where free addresses and numbers are looked for. Each
// method answers from whole transactions; two calls may see different ones.
// Slices that it returns are in key order and must not be changed.
type View struct {
	log *slog.Logger

	mu        sync.RWMutex
	rev       store.Revision
	global    model.Global
	hasGlobal bool
	tenants   *rows[model.TenantName, model.Tenant]
	networks  *rows[model.NetworkKey, model.Network]
	groups    *rows[model.GroupKey, model.Group]
	policies  *rows[model.PolicyKey, model.Policy]
	rules     *rows[model.RuleKey, model.PolicyRule]
	hosts     *rows[model.HostName, model.Host]
	endpoints map[model.EndpointKey]model.Endpoint
	listed    lists[model.Endpoint] // of networks, groups and hosts
	more      moreRows
	sizes     sizes

	endpointsOfNetwork index[model.NetworkKey, model.EndpointKey]
	endpointsOfGroup   index[model.GroupKey, model.EndpointKey]
	endpointsOfHost    index[model.HostName, model.EndpointKey]
	endpointsByText    index[string, model.EndpointKey] // id, container and name
	groupsOfNetwork    index[model.NetworkKey, model.GroupKey]
	groupsOfPolicy     index[model.PolicyKey, model.GroupKey]
	rulesOfPolicy      index[model.PolicyKey, model.RuleKey]
	rulesOfGroup       index[model.GroupKey, model.RuleKey] // that name the group
	identityUsers      map[model.Identity]int
	identities         map[model.Identity]model.IdentityRecord
	identitiesOf       index[model.TenantName, model.Identity]
	identitiesOfGroup  index[model.GroupKey, model.Identity]

	interned map[tables.InternKey]tables.Interned
	pools    map[model.NetworkKey]tables.Pools
	spaces   map[model.NetworkKey]*space
	numbers  map[tables.NumberKind]*numbers
	settling []settling
}

func newView(log *slog.Logger) *View {
	v := &View{log: log}
	v.reset()
	return v
}

func (v *View) reset() {
	none := func(model.TenantName) model.TenantName { return "" }
	noHost := func(model.HostName) model.TenantName { return "" }
	v.hasGlobal = false
	v.tenants = newRows[model.TenantName, model.Tenant](none, cmp.Compare[model.TenantName])
	v.networks = newRows[model.NetworkKey, model.Network](func(k model.NetworkKey) model.TenantName { return k.Tenant }, lessNetwork)
	v.groups = newRows[model.GroupKey, model.Group](func(k model.GroupKey) model.TenantName { return k.Tenant }, lessGroup)
	v.policies = newRows[model.PolicyKey, model.Policy](func(k model.PolicyKey) model.TenantName { return k.Tenant }, lessPolicy)
	v.rules = newRows[model.RuleKey, model.PolicyRule](func(k model.RuleKey) model.TenantName { return k.Tenant }, lessRule)
	v.hosts = newRows[model.HostName, model.Host](noHost, cmp.Compare[model.HostName])
	v.more = newMoreRows()
	v.sizes = newSizes()
	v.endpoints = map[model.EndpointKey]model.Endpoint{}
	v.listed.of = nil
	v.endpointsOfNetwork = index[model.NetworkKey, model.EndpointKey]{}
	v.endpointsOfGroup = index[model.GroupKey, model.EndpointKey]{}
	v.endpointsOfHost = index[model.HostName, model.EndpointKey]{}
	v.endpointsByText = index[string, model.EndpointKey]{}
	v.groupsOfNetwork = index[model.NetworkKey, model.GroupKey]{}
	v.groupsOfPolicy = index[model.PolicyKey, model.GroupKey]{}
	v.rulesOfPolicy = index[model.PolicyKey, model.RuleKey]{}
	v.rulesOfGroup = index[model.GroupKey, model.RuleKey]{}
	v.identityUsers = map[model.Identity]int{}
	v.identities = map[model.Identity]model.IdentityRecord{}
	v.identitiesOf = index[model.TenantName, model.Identity]{}
	v.identitiesOfGroup = index[model.GroupKey, model.Identity]{}
	v.interned = map[tables.InternKey]tables.Interned{}
	v.pools = map[model.NetworkKey]tables.Pools{}
	v.spaces = map[model.NetworkKey]*space{}
	v.numbers = map[tables.NumberKind]*numbers{}
	for _, kind := range []tables.NumberKind{tables.NumberVLAN, tables.NumberVNI, tables.NumberNetwork, tables.NumberIdentity} {
		v.numbers[kind] = newNumbers()
	}
}

// apply enters a batch of the mirror.
func (v *View) apply(b store.Batch) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b.Snapshot {
		v.reset()
	}
	for _, ev := range b.Events {
		ch, err := tables.Decode(ev)
		if err != nil {
			// As hosts do, which cannot read it either: what it described is missing.
			v.log.Error("a record of the store cannot be read: the object counts as missing until it is deleted or written anew", "key", ev.KV.Key, "error", err)
			ch.Value = nil
		}
		v.enter(ch)
	}
	v.rev = b.Revision
	v.settle()
	return nil
}

// value returns a pointer to a change's value, nil when it was deleted.
func value[V any](ch tables.Change) *V {
	if ch.Deleted() {
		return nil
	}
	x := ch.Value.(V)
	return &x
}

func (v *View) enter(ch tables.Change) {
	switch k := ch.Key.(type) {
	case tables.GlobalKey:
		g := value[model.Global](ch)
		if v.hasGlobal = g != nil; v.hasGlobal {
			v.global = *g
		}
	case model.TenantName:
		v.tenants.set(k, value[model.Tenant](ch))
	case model.HostName:
		v.hosts.set(k, value[model.Host](ch))
	case model.NetworkKey:
		v.networks.set(k, value[model.Network](ch))
		v.dropSpace(k)
	case model.GroupKey:
		v.enterGroup(k, value[model.Group](ch))
	case model.PolicyKey:
		if v.policies.set(k, value[model.Policy](ch)); ch.Deleted() {
			delete(v.sizes.meters, unionOf(k.Tenant, k.Name))
		}
	case model.RuleKey:
		v.enterRule(k, value[model.PolicyRule](ch))
	case tables.IdentityKey:
		v.enterIdentity(k.ID, value[model.IdentityRecord](ch))
	case model.EndpointKey:
		v.enterEndpoint(k, value[model.Endpoint](ch))
	case tables.AddressKey:
		v.space(k.Network).enter(k.Addr, value[tables.Address](ch), ch.Create)
		if ch.Deleted() {
			v.dropSpace(k.Network)
		}
	case tables.PoolsKey:
		if p := value[tables.Pools](ch); p != nil {
			v.pools[k.Network] = *p
		} else {
			delete(v.pools, k.Network)
		}
	case tables.NumberKey:
		if n := v.numbers[k.Kind]; n != nil {
			n.enter(k.Number, !ch.Deleted())
		}
	case tables.CursorKey:
		if c := value[tables.Cursor](ch); c != nil && v.numbers[k.Kind] != nil {
			v.numbers[k.Kind].Seen(c.Last)
		}
	case tables.InternKey:
		if i := value[tables.Interned](ch); i != nil {
			v.interned[k] = *i
		} else {
			delete(v.interned, k)
		}
	default:
		v.more.enter(ch)
	}
}

func (v *View) enterGroup(k model.GroupKey, g *model.Group) {
	if old, had := v.groups.set(k, g); had {
		v.groupsOfNetwork.remove(old.NetworkKey(), k)
		v.more.indexGroup(old, false)
		v.sizes.indexGroup(old, false)
		for _, p := range old.Policies {
			v.groupsOfPolicy.remove(model.PolicyKey{Tenant: k.Tenant, Name: p}, k)
		}
	}
	if g == nil {
		return
	}
	v.groupsOfNetwork.add(g.NetworkKey(), k)
	v.more.indexGroup(*g, true)
	v.sizes.indexGroup(*g, true)
	for _, p := range g.Policies {
		v.groupsOfPolicy.add(model.PolicyKey{Tenant: k.Tenant, Name: p}, k)
	}
}

func (v *View) enterRule(k model.RuleKey, r *model.PolicyRule) {
	if old, had := v.rules.set(k, r); had {
		v.rulesOfPolicy.remove(k.PolicyKey(), k)
		v.sizes.enterRule(old, false)
		for _, g := range groupsNamed(old) {
			v.rulesOfGroup.remove(g, k)
		}
	}
	if r == nil {
		return
	}
	v.rulesOfPolicy.add(k.PolicyKey(), k)
	v.sizes.enterRule(*r, true)
	for _, g := range groupsNamed(*r) {
		v.rulesOfGroup.add(g, k)
	}
}

// groupsNamed returns the groups that a rule's peers name.
func groupsNamed(r model.PolicyRule) (out []model.GroupKey) {
	for _, p := range r.Peers {
		if p.Selector != nil && p.Selector.Group != "" {
			out = append(out, model.GroupKey{Tenant: p.Selector.Tenant, Name: p.Selector.Group})
		}
	}
	return unique(out)
}

func endpointTexts(e model.Endpoint) []string {
	return slices.Compact([]string{string(e.Key.ID), e.Container, e.Name})
}

func (v *View) enterEndpoint(k model.EndpointKey, e *model.Endpoint) {
	if old, had := v.endpoints[k]; had {
		v.listed.drop(k.Network, model.GroupKey{Tenant: k.Network.Tenant, Name: old.Group}, old.Host)
		v.endpointsOfNetwork.remove(k.Network, k)
		v.endpointsOfGroup.remove(model.GroupKey{Tenant: k.Network.Tenant, Name: old.Group}, k)
		v.endpointsOfHost.remove(old.Host, k)
		v.more.indexLabels(old, false)
		for _, s := range endpointTexts(old) {
			v.endpointsByText.remove(s, k)
		}
		if v.identityUsers[old.Identity]--; v.identityUsers[old.Identity] == 0 {
			delete(v.identityUsers, old.Identity)
		}
		delete(v.endpoints, k)
	}
	if e == nil {
		return
	}
	v.endpoints[k] = *e
	v.listed.drop(k.Network, model.GroupKey{Tenant: k.Network.Tenant, Name: e.Group}, e.Host)
	v.endpointsOfNetwork.add(k.Network, k)
	v.endpointsOfHost.add(e.Host, k)
	v.more.indexLabels(*e, true)
	if e.Group != "" {
		v.endpointsOfGroup.add(model.GroupKey{Tenant: k.Network.Tenant, Name: e.Group}, k)
	}
	for _, s := range endpointTexts(*e) {
		if s != "" {
			v.endpointsByText.add(s, k)
		}
	}
	v.identityUsers[e.Identity]++
}

// read runs f under the read lock.
func read[T any](v *View, f func() T) T {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return f()
}

func find[K comparable, V any](v *View, all func() map[K]V, k K) (V, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x, ok := all()[k]
	return x, ok
}

// Revision returns the store revision that the view has reached.
func (v *View) Revision() store.Revision { return read(v, func() store.Revision { return v.rev }) }

// Global returns the settings.
func (v *View) Global() (model.Global, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.global, v.hasGlobal
}

// Tenants returns all tenants.
func (v *View) Tenants() []model.Tenant {
	return read(v, func() []model.Tenant { return v.tenants.list("") })
}

// Tenant finds a tenant.
func (v *View) Tenant(k model.TenantName) (model.Tenant, bool) {
	return find(v, func() map[model.TenantName]model.Tenant { return v.tenants.all }, k)
}

// Networks returns the networks of a tenant, "" = of all.
func (v *View) Networks(t model.TenantName) []model.Network {
	return read(v, func() []model.Network { return v.networks.list(t) })
}

// Network finds a network.
func (v *View) Network(k model.NetworkKey) (model.Network, bool) {
	return find(v, func() map[model.NetworkKey]model.Network { return v.networks.all }, k)
}

// Groups returns the groups of a tenant, "" = of all.
func (v *View) Groups(t model.TenantName) []model.Group {
	return read(v, func() []model.Group { return v.groups.list(t) })
}

// Group finds a group.
func (v *View) Group(k model.GroupKey) (model.Group, bool) {
	return find(v, func() map[model.GroupKey]model.Group { return v.groups.all }, k)
}

// GroupsOfNetwork returns the groups on a network.
func (v *View) GroupsOfNetwork(k model.NetworkKey) []model.Group {
	return read(v, func() []model.Group { return sorted(v.groupsOfNetwork[k], v.groups.all, lessGroup) })
}

// GroupsOfPolicy returns the groups that a policy is attached to.
func (v *View) GroupsOfPolicy(k model.PolicyKey) []model.Group {
	return read(v, func() []model.Group { return sorted(v.groupsOfPolicy[k], v.groups.all, lessGroup) })
}

// Hosts returns all hosts that agents have told of.
func (v *View) Hosts() []model.Host {
	return read(v, func() []model.Host { return v.hosts.list("") })
}

// Host finds a host.
func (v *View) Host(k model.HostName) (model.Host, bool) {
	return find(v, func() map[model.HostName]model.Host { return v.hosts.all }, k)
}

// Endpoint finds an endpoint.
func (v *View) Endpoint(k model.EndpointKey) (model.Endpoint, bool) {
	return find(v, func() map[model.EndpointKey]model.Endpoint { return v.endpoints }, k)
}

// NumEndpoints returns how many endpoints a network has.
func (v *View) NumEndpoints(k model.NetworkKey) int {
	return read(v, func() int { return len(v.endpointsOfNetwork[k]) })
}

// NumEndpointsOfHost returns how many endpoints live on a host.
func (v *View) NumEndpointsOfHost(k model.HostName) int {
	return read(v, func() int { return len(v.endpointsOfHost[k]) })
}

// NumAllEndpoints returns how many endpoints there are.
func (v *View) NumAllEndpoints() int { return read(v, func() int { return len(v.endpoints) }) }

// Endpoints returns the endpoints of a tenant, "" = of all.
func (v *View) Endpoints(t model.TenantName) []model.Endpoint {
	var out []model.Endpoint
	for _, n := range v.Networks(t) {
		out = append(out, v.EndpointsOfNetwork(n.Key)...)
	}
	return out
}

// EndpointsOfNetwork returns a network's endpoints.
func (v *View) EndpointsOfNetwork(k model.NetworkKey) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfNetwork[k] })
}

// EndpointsOfGroup returns a group's endpoints.
func (v *View) EndpointsOfGroup(k model.GroupKey) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfGroup[k] })
}

// EndpointsOfHost returns the endpoints that live on a host.
func (v *View) EndpointsOfHost(k model.HostName) []model.Endpoint {
	return v.listEndpoints(k, func() map[model.EndpointKey]struct{} { return v.endpointsOfHost[k] })
}

func (v *View) listEndpoints(owner any, members func() map[model.EndpointKey]struct{}) []model.Endpoint {
	return read(v, func() []model.Endpoint {
		return v.listed.get(owner, func() []model.Endpoint { return sorted(members(), v.endpoints, lessEndpoint) })
	})
}

// FindEndpoints returns the endpoints whose id, container id or name equals
// the text (1.x took any that held it as a part, known fault 30).
func (v *View) FindEndpoints(text string) []model.Endpoint {
	return read(v, func() []model.Endpoint { return sorted(v.endpointsByText[text], v.endpoints, lessEndpoint) })
}

// Addresses returns the addresses of a network that endpoints and reservations
// hold, in order.
func (v *View) Addresses(k model.NetworkKey) []netip.Addr {
	return read(v, func() []netip.Addr {
		s := v.spaces[k]
		if s == nil {
			return nil
		}
		return slices.SortedFunc(maps.Keys(s.owners), netip.Addr.Compare)
	})
}

// TagsInUse lists the tags of an encapsulation that networks have, such as
// "1-4, 6-7, 5000".
func (v *View) TagsInUse(e model.Encap) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var n ipam.Numbers
	for _, net := range v.networks.all {
		if net.Encap == e {
			n.Add(net.Tag)
		}
	}
	return n.String()
}
