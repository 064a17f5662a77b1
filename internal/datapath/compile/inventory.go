package compile

import (
	"github.com/contiv/netplugin/v2/internal/model"
)

// inventory has the objects that nodes share: networks with their endpoints, groups,
// policies with their rules, and tenants. An object exists before its row does, once
// another row names it. The type of an object says which node writes which field.
//
// Takes: nothing. Gives: objects by key; as a step, it removes the unreferenced ones.
type inventory struct {
	networks map[model.NetworkKey]*network
	groups   map[model.GroupKey]*group
	policies map[model.PolicyKey]*policy
	tenants  map[model.TenantName]*tenant

	dirtyNetworks *marks[*network]
	dirtyGroups   *marks[*group]
	dirtyTenants  *marks[*tenant]
}

// compile forgets entries that nothing refers to any more.
func (inv *inventory) compile() {
	for n := range inv.dirtyNetworks.of {
		if n.base == nil && n.empty() {
			delete(inv.networks, n.key)
			delete(n.tenant.networks, n)
			inv.dirtyTenants.add(n.tenant)
		}
	}
	for g := range inv.dirtyGroups.of {
		if g.rec == nil && len(g.subjects) == 0 {
			delete(inv.groups, g.key)
		}
	}
	for t := range inv.dirtyTenants.of {
		if t.empty() {
			delete(inv.tenants, t.name)
		}
	}
}

func (inv *inventory) network(k model.NetworkKey) *network {
	return lookup(inv.networks, k, func() *network {
		n := &network{
			key: k, tenant: inv.tenant(k.Tenant), eps: map[model.EndpointID]*endpoint{},
			byHost: map[model.HostName]set[*endpoint]{}, macs: map[model.MAC][]*endpoint{},
		}
		n.tenant.networks.add(n)
		return n
	})
}

func (inv *inventory) group(k model.GroupKey) *group {
	return lookup(inv.groups, k, func() *group { return &group{key: k, subjects: set[*subject]{}} })
}

func (inv *inventory) tenant(name model.TenantName) *tenant {
	return lookup(inv.tenants, name, func() *tenant {
		return &tenant{
			name: name, networks: set[*network]{}, records: map[model.Identity]*model.IdentityRecord{}, postings: map[term]set[model.Identity]{},
			uses: map[model.Identity]int{}, orphans: set[model.Identity]{}, later: set[model.Identity]{}, named: set[*rule]{}, subjects: map[model.Identity]set[*subject]{},
			selections: map[string]*selection{}, byTerm: map[term]set[*selection]{},
		}
	})
}

func (inv *inventory) policy(k model.PolicyKey) *policy {
	return lookup(inv.policies, k, func() *policy {
		return &policy{key: k, rules: map[model.RuleID]*rule{}, refs: set[model.GroupKey]{}, sets: set[*policySet]{}}
	})
}

func (inv *inventory) dropPolicy(p *policy) {
	if p.rec == nil && len(p.rules) == 0 && len(p.refs) == 0 && len(p.sets) == 0 && inv.policies[p.key] == p {
		delete(inv.policies, p.key)
	}
}
