package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/datapath/desired"
	"github.com/contiv/netplugin/v2/internal/model"
)

// Networks that are shared with other tenants: all tenants that share have one router,
// and tiers around their policies keep them apart but where a network is shared.

// notRouted are addresses that stay within a network, whichever endpoint uses them.
var notRouted = []desired.CIDR{
	{Prefix: netip.MustParsePrefix("169.254.0.0/16")},
	{Prefix: netip.MustParsePrefix("224.0.0.0/4")},
	{Prefix: netip.MustParsePrefix("255.255.255.255/32")},
	{Prefix: netip.MustParsePrefix("fe80::/10")},
	{Prefix: netip.MustParsePrefix("ff00::/8")},
}

// shares reports whether a tenant shares networks, as owner or as client.
func (rt *routing) shares(name model.TenantName) bool {
	return len(rt.shared[name]) > 0 || len(rt.clients[name]) > 0
}

// partners are the tenants that a tenant shares networks with.
func (rt *routing) partners(name model.TenantName) set[model.TenantName] {
	out := set[model.TenantName]{}
	for _, k := range rt.shared[name] {
		out.add(k.Tenant)
	}
	for client := range rt.clients[name] {
		out.add(client)
	}
	return out
}

// putShared records which networks of others a tenant reaches.
func (rt *routing) putShared(name model.TenantName, now []model.NetworkKey) {
	old := rt.shared[name]
	if slices.Equal(old, now) {
		return
	}
	concerned := rt.partners(name)
	for _, k := range old {
		removeFrom(rt.clients, k.Tenant, name)
	}
	for _, k := range now {
		addTo(rt.clients, k.Tenant, name)
	}
	if rt.shared[name] = now; len(now) == 0 {
		delete(rt.shared, name)
	}
	for p := range rt.partners(name) {
		concerned.add(p)
	}
	concerned.add(name)
	for p := range concerned {
		rt.touchRouter(rt.inv.tenants[p])
		rt.touchIsolation(rt.inv.tenants[p])
	}
}

// touchIsolation has it looked at what keeps a tenant's ports from other tenants.
func (rt *routing) touchIsolation(t *tenant) {
	if t == nil {
		return
	}
	rt.dirtyTenants.add(t)
	for _, subjects := range t.subjects {
		for s := range subjects {
			rt.dirtySubjects.add(s)
		}
	}
}

// touchShared does that after a change of a network of a tenant, if it shares any.
func (rt *routing) touchShared(t *tenant) {
	if !rt.shares(t.name) {
		return
	}
	rt.touchIsolation(t)
	for p := range rt.partners(t.name) {
		rt.touchIsolation(rt.inv.tenants[p])
	}
}

// isHere reports whether a tenant has endpoints on this host.
func (rt *routing) isHere(name model.TenantName) bool {
	t := rt.inv.tenants[name]
	return t != nil && t.local > 0
}

// reaches reports whether a network is shared with a tenant.
func (rt *routing) reaches(client model.TenantName, k model.NetworkKey) bool {
	return slices.Contains(rt.shared[client], k)
}

// sharedHere reports whether endpoints on this host reach a network of another tenant,
// or may answer it: it is shared with a tenant that has some, or its tenant reaches a
// network of one that has.
func (rt *routing) sharedHere(n *network, isHere func(model.TenantName) bool) bool {
	for client := range rt.clients[n.key.Tenant] {
		if isHere(client) && rt.reaches(client, n.key) {
			return true
		}
	}
	return slices.ContainsFunc(rt.shared[n.key.Tenant], func(k model.NetworkKey) bool { return isHere(k.Tenant) })
}

// isolationTiers are the tiers of the ports on a network of a tenant that shares networks.
// Before all policies: the peer is of the tenant itself, or no endpoint. For egress it may
// also be on a network that the tenant reaches, and for ingress of a tenant that reaches
// their network. After all policies, on a network that others reach: a peer that no policy
// has allowed so far has to be the tenant's.
func (rt *routing) isolationTiers(n *network) (in, out, last []desired.Tier) {
	own := func(a model.Action) desired.Rules {
		rules := desired.RulesOf(
			desired.Rule{ID: "tenants/outside", Priority: 100, Action: a, Identities: desired.IdentitiesOf(model.IdentityExternal)},
			desired.Rule{ID: "tenants/unrouted", Priority: 100, Action: a, CIDRs: notRouted})
		for o := range n.tenant.networks {
			addAllowedNetwork(&rules, o, a)
		}
		return rules
	}
	inward, outward := own(model.Pass), own(model.Pass)
	for _, k := range rt.shared[n.key.Tenant] {
		if o := rt.inv.networks[k]; o != nil {
			addAllowedNetwork(&outward, o, model.Pass)
		}
	}
	for client := range rt.clients[n.key.Tenant] {
		if !rt.reaches(client, n.key) {
			continue
		}
		last = []desired.Tier{{Tier: model.TierShared, Rules: own(model.Allow), Default: model.Deny}}
		if t := rt.inv.tenants[client]; t != nil {
			for o := range t.networks {
				addAllowedNetwork(&inward, o, model.Pass)
			}
		}
	}
	in = []desired.Tier{{Tier: model.TierTenants, Rules: inward, Default: model.Deny}}
	out = []desired.Tier{{Tier: model.TierTenants, Rules: outward, Default: model.Deny}}
	return in, out, last
}

// addAllowedNetwork adds a rule for the addresses of a network.
func addAllowedNetwork(rules *desired.Rules, n *network, a model.Action) {
	if n.rec == nil {
		return
	}
	r := &desired.Rule{ID: "tenants/" + n.key.String(), Priority: 100, Action: a}
	for _, p := range []netip.Prefix{n.rec.Subnet, n.rec.Subnet6} {
		if p.IsValid() {
			r.CIDRs = append(r.CIDRs, desired.CIDR{Prefix: p})
		}
	}
	*rules = rules.Set(r.ID, r)
}

func (rt *routing) sharedProblem(t *tenant) string {
	switch {
	case t.local == 0 || len(rt.shared[t.name]) == 0:
		return ""
	case !rt.settings.routes():
		return "no effect: networks of other tenants are reached in forwarding mode routing only"
	}
	var unknown []string
	for _, k := range rt.shared[t.name] {
		if n := rt.inv.networks[k]; n == nil || n.rec == nil {
			unknown = append(unknown, k.String())
		}
	}
	if unknown == nil {
		return ""
	}
	return fmt.Sprintf("%s: not known here, and not reached", strings.Join(unknown, ", "))
}
