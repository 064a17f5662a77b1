package statemirror

import (
	"github.com/contiv/netplugin/v2/internal/datapath/compile"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// A host follows the global part, the rests of the tenants that it has to do with, and
// the endpoints of the networks that concern it (docs/design/scale.md): what its own
// containers can reach, or answer.

// manyNetworks is how many networks of a tenant a host follows one by one: of more, one
// mirror of all endpoints of the tenant costs the store less.
const manyNetworks = 16

// interests says which Scopes concern this host. It owns no state: the State asks it when
// something has changed.
type interests struct {
	mirrors     *mirrorSet
	unconfirmed *UnconfirmedChanges
	settings    *Settings
	comp        *compile.Compiler
}

// scopes returns the Scopes that concern this host beside the rests that
// attachments need, as far as it can be said by what is known.
func (i interests) scopes() map[Scope]bool {
	memo := map[model.TenantName]bool{}
	isHere := func(t model.TenantName) bool {
		is, known := memo[t]
		if !known {
			is = i.mirrors.hasEndpointsHere(t)
			memo[t] = is
		}
		return is
	}
	out := map[Scope]bool{}
	for t := range i.partners(isHere) {
		out[TenantScope(t)] = true
	}
	for _, t := range i.bgpTenants() {
		out[TenantScope(t)] = true
	}
	comp := i.compiler()
	for t := range comp.Interest.ServingTenants() {
		out[TenantScope(t)] = true
	}
	for p, m := range i.mirrors.byScope {
		if !p.isTenant() {
			continue
		}
		one := i.networks(comp, m, isHere)
		if len(one) > manyNetworks || comp.Interest.AreAllNeeded(p.Tenant, isHere) {
			out[allEndpointsScope(p.Tenant)] = true
			continue
		}
		for _, part := range one {
			out[part] = true
		}
	}
	return out
}

// networks returns the networks of a tenant's mirror that concern this host.
func (i interests) networks(comp *compile.Compiler, m *mirror, isHere func(model.TenantName) bool) []Scope {
	one, outside, led := []Scope{}, []Scope{}, false
	for _, v := range i.mirrors.rows(m) {
		n, is := v.(model.Network)
		if !is {
			continue
		}
		if n, is = i.unconfirmed.effective(n.Key, n).(model.Network); !is {
			continue
		}
		part := EndpointsScope(n.Key)
		x := i.mirrors.byScope[part]
		used := i.mirrors.uses[part] > 0 || x != nil && len(x.endpoints) > 0
		led = led || used && mayLeadOutside(n)
		switch {
		case used, comp.Interest.IsNeeded(n.Key, isHere):
			one = append(one, part)
		case mayLeadOutside(n):
			outside = append(outside, part)
		}
	}
	if led {
		one = append(one, outside...)
	}
	return one
}

// partners returns the tenants that those present here share networks with: in
// forwarding mode routing these are reached, and judged, here.
func (i interests) partners(isHere func(model.TenantName) bool) map[model.TenantName]bool {
	out := map[model.TenantName]bool{}
	global := i.mirrors.global()
	if global == nil {
		return out
	}
	values := i.mirrors.rows(global)
	if g, known := i.unconfirmed.effective(tables.GlobalKey{}, values[tables.GlobalKey{}]).(model.Global); !known || i.settings.effective(g).FwdMode != model.FwdRouting {
		return out
	}
	for p := range i.mirrors.byScope {
		t, known := values[p.Tenant].(model.Tenant)
		if !p.isTenant() || !known || !isHere(p.Tenant) {
			continue
		}
		for _, k := range t.Shared {
			out[k.Tenant] = true
		}
		for _, client := range t.Clients {
			out[client] = true
		}
	}
	return out
}

// bgpTenants are the tenants that a host which speaks BGP follows, whether it has
// anything of them or not: all, since no route of a router may lead their networks away.
func (i interests) bgpTenants() (out []model.TenantName) {
	global := i.mirrors.global()
	if global == nil {
		return nil
	}
	rows := i.mirrors.rows(global)
	if _, speaks := rows[tables.BgpKey{Host: i.mirrors.Host}]; !speaks {
		return nil
	}
	for k := range rows {
		if t, is := k.(model.TenantName); is {
			out = append(out, t)
		}
	}
	return out
}

// compiler knows which networks concern this host: it is the Compiler, or before the first
// desired state, one that gets the staged rows that the rule needs.
func (i interests) compiler() *compile.Compiler {
	if !i.mirrors.isPreparing() {
		return i.comp
	}
	x := compile.New(i.mirrors.Host)
	for p, m := range i.mirrors.byScope {
		if p.Network != "" || p.All {
			continue
		}
		for _, v := range m.seen {
			switch v := v.(type) {
			case model.Global:
				x.SetGlobal(v)
			case model.Tenant:
				x.SetTenant(v)
			case model.Network:
				x.SetNetwork(v)
			case model.Service:
				x.SetService(v)
			}
		}
	}
	return x
}

// mayLeadOutside reports whether a router outside of the cluster may lead to a network: then
// its containers' names are answered on others like it.
func mayLeadOutside(n model.Network) bool {
	return n.Encap == model.EncapVLAN && (n.Gateway.IsValid() || n.Gateway6.IsValid())
}
