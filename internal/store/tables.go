package store

import (
	"strconv"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
)

// The key layout, all under /contiv.io/. Names are written by Segment.
//
//	state/global/config/global             model.Global
//	state/global/config/store              Incarnation, written by netmaster
//	state/global/tenants/T                 model.Tenant
//	state/global/hosts/H                   model.Host, written by H's agent
//	state/tenant/T/networks/N              model.Network
//	state/tenant/T/groups/G                model.Group
//	state/tenant/T/policies/P              model.ContivPolicy
//	state/tenant/T/rules/P/R               model.Rule
//	state/tenant/T/endpoints/N/E           model.Endpoint
//	state/tenant/T/identities/NUMBER       model.IdentityRecord
//	others under state/global/, tenant/    see tables_more.go
//	state/alloc/...                        see tables_alloc.go; agents do not watch it
const (
	// StatePrefix holds everything that Decode understands.
	StatePrefix = Root + "state/"
	// GlobalPrefix holds what every agent needs.
	GlobalPrefix = StatePrefix + "global/"
	// AllocPrefix holds allocations and reverse references, for control alone.
	AllocPrefix = StatePrefix + "alloc/"

	tenantsPrefix = StatePrefix + "tenant/"
	configScope   = GlobalPrefix + "config/"
	tenantScope   = GlobalPrefix + "tenants/"
	hostScope     = GlobalPrefix + "hosts/"
)

// TenantPrefix holds all that an agent with endpoints of the tenant needs
// beside GlobalPrefix.
func TenantPrefix(t model.TenantName) string { return tenantsPrefix + Segment(string(t)) + "/" }

// GlobalKey is the key of the only row of Globals.
type GlobalKey struct{}

// IdentityKey names an identity record; numbers are unique within the cluster,
// the tenant is where agents find the record.
type IdentityKey struct {
	Tenant model.TenantName
	ID     model.Identity
}

// NetworksOf is the scope of a tenant's networks; likewise the functions below.
func NetworksOf(t model.TenantName) string { return TenantPrefix(t) + "networks/" }

// GroupsOf is the scope of a tenant's groups.
func GroupsOf(t model.TenantName) string { return TenantPrefix(t) + "groups/" }

// PoliciesOf is the scope of a tenant's policies.
func PoliciesOf(t model.TenantName) string { return TenantPrefix(t) + "policies/" }

// RulesOf is the scope of a policy's rules.
func RulesOf(p model.PolicyKey) string {
	return TenantPrefix(p.Tenant) + "rules/" + Segment(string(p.Name)) + "/"
}

// EndpointsOf is the prefix of a network's endpoints. Endpoints is Unlisted:
// whether a network has any is told by AddressesOf.
func EndpointsOf(n model.NetworkKey) string {
	return TenantPrefix(n.Tenant) + "endpoints/" + Segment(string(n.Name)) + "/"
}

// IdentitiesOf is the prefix of a tenant's identity records.
func IdentitiesOf(t model.TenantName) string { return TenantPrefix(t) + "identities/" }

// TenantsScope is the scope of all tenants, HostsScope of all hosts.
const (
	TenantsScope = tenantScope
	HostsScope   = hostScope
)

// Globals holds the cluster's settings.
var Globals = NewTable(TableSpec[GlobalKey, model.Global]{
	Noun: "global", Version: 1, Unlisted: true,
	KeyOf: func(model.Global) GlobalKey { return GlobalKey{} },
	Show:  func(GlobalKey) string { return "global" },
	Scope: func(GlobalKey) string { return configScope },
	Name:  func(GlobalKey) string { return "global" },
})

// Tenants holds all tenants.
var Tenants = NewTable(TableSpec[model.TenantName, model.Tenant]{
	Noun: "tenant", Version: 1,
	KeyOf: func(t model.Tenant) model.TenantName { return t.Name },
	Scope: func(model.TenantName) string { return tenantScope },
	Name:  func(k model.TenantName) string { return Segment(string(k)) },
})

// Hosts holds what agents tell of their hosts.
var Hosts = NewTable(TableSpec[model.HostName, model.Host]{
	Noun: "host", Version: 1,
	KeyOf: func(h model.Host) model.HostName { return h.Name },
	Scope: func(model.HostName) string { return hostScope },
	Name:  func(k model.HostName) string { return Segment(string(k)) },
})

// Networks holds networks by tenant.
var Networks = NewTable(TableSpec[model.NetworkKey, model.Network]{
	Noun: "network", Version: 1,
	KeyOf: func(n model.Network) model.NetworkKey { return n.Key },
	Show:  model.NetworkKey.String,
	Scope: func(k model.NetworkKey) string { return NetworksOf(k.Tenant) },
	Name:  func(k model.NetworkKey) string { return Segment(string(k.Name)) },
})

// Groups holds endpoint groups by tenant.
var Groups = NewTable(TableSpec[model.GroupKey, model.Group]{
	Noun: "endpoint group", Version: 1,
	KeyOf: func(g model.Group) model.GroupKey { return g.Key },
	Show:  model.GroupKey.String,
	Scope: func(k model.GroupKey) string { return GroupsOf(k.Tenant) },
	Name:  func(k model.GroupKey) string { return Segment(string(k.Name)) },
})

// Policies holds Contiv policies by tenant.
var Policies = NewTable(TableSpec[model.PolicyKey, model.ContivPolicy]{
	Noun: "policy", Version: 1,
	KeyOf: func(p model.ContivPolicy) model.PolicyKey { return p.Key },
	Show:  model.PolicyKey.String,
	Scope: func(k model.PolicyKey) string { return PoliciesOf(k.Tenant) },
	Name:  func(k model.PolicyKey) string { return Segment(string(k.Name)) },
})

// Rules holds rules by policy.
var Rules = NewTable(TableSpec[model.RuleKey, model.Rule]{
	Noun: "rule", Version: 1,
	KeyOf: func(r model.Rule) model.RuleKey { return r.Key },
	Show:  model.RuleKey.String,
	Scope: func(k model.RuleKey) string { return RulesOf(k.PolicyKey()) },
	Name:  func(k model.RuleKey) string { return Segment(string(k.Rule)) },
})

// Endpoints holds endpoints by network.
var Endpoints = NewTable(TableSpec[model.EndpointKey, model.Endpoint]{
	Noun: "endpoint", Version: 1, Unlisted: true,
	KeyOf: func(e model.Endpoint) model.EndpointKey { return e.Key },
	Show:  model.EndpointKey.String,
	Scope: func(k model.EndpointKey) string { return EndpointsOf(k.Network) },
	Name:  func(k model.EndpointKey) string { return Segment(string(k.ID)) },
})

// Identities holds what identity numbers stand for, by tenant.
var Identities = NewTable(TableSpec[IdentityKey, model.IdentityRecord]{
	Noun: "identity", Version: 1, Unlisted: true,
	KeyOf: func(r model.IdentityRecord) IdentityKey { return IdentityKey{r.Network.Tenant, r.ID} },
	Show:  func(k IdentityKey) string { return strconv.FormatUint(uint64(k.ID), 10) },
	Scope: func(k IdentityKey) string { return IdentitiesOf(k.Tenant) },
	Name:  func(k IdentityKey) string { return strconv.FormatUint(uint64(k.ID), 10) },
})

// Change is a mirror event under StatePrefix in typed form.
type Change struct {
	// Key is a GlobalKey, IncarnationKey, model.TenantName, model.HostName, model.NetworkKey,
	// model.GroupKey, model.PolicyKey, model.RuleKey, model.EndpointKey,
	// IdentityKey, or one of the keys of tables_more.go and tables_alloc.go. It is nil for a key that
	// this program does not know, which a newer one may have written.
	Key any
	// Value is the row (model.Network for a model.NetworkKey, and so on); nil when
	// it was deleted.
	Value       any
	Create, Mod Revision
}

// Deleted tells whether the row is gone.
func (c Change) Deleted() bool { return c.Value == nil }

// Decode turns an event of a mirror into typed form. It fails on a row that
// cannot be read, and then still tells the key.
func Decode(ev Event) (Change, error) {
	rest, ok := strings.CutPrefix(ev.KV.Key, StatePrefix)
	if !ok {
		return Change{}, nil
	}
	escaped := strings.Split(rest, "/")
	seg := make([]string, len(escaped))
	for i, s := range escaped {
		if seg[i], ok = ParseSegment(s); !ok {
			return Change{}, nil
		}
	}
	switch seg[0] {
	case "global":
		return decodeGlobal(ev, seg[1:])
	case "tenant":
		if len(seg) < 4 {
			return Change{}, nil
		}
		return decodeTenant(ev, model.TenantName(seg[1]), seg[2], seg[3:])
	case "alloc":
		return decodeAlloc(ev, seg[1:])
	}
	return Change{}, nil
}

func decodeGlobal(ev Event, seg []string) (Change, error) {
	if len(seg) != 2 {
		return Change{}, nil
	}
	switch seg[0] {
	case "config":
		if seg[1] == "global" {
			return decodeRow(Globals, GlobalKey{}, ev)
		}
		if seg[1] == "store" {
			return decodeRow(Incarnations, IncarnationKey{}, ev)
		}
		if seg[1] == "aciGw" {
			return decodeRow(AciGws, AciGwKey{}, ev)
		}
	case "bgp":
		return decodeRow(Bgps, BgpKey{model.HostName(seg[1])}, ev)
	case "tenants":
		return decodeRow(Tenants, model.TenantName(seg[1]), ev)
	case "hosts":
		return decodeRow(Hosts, model.HostName(seg[1]), ev)
	}
	return Change{}, nil
}

func decodeTenant(ev Event, t model.TenantName, kind string, seg []string) (Change, error) {
	switch {
	case kind == "networks" && len(seg) == 1:
		return decodeRow(Networks, model.NetworkKey{Tenant: t, Name: model.NetworkName(seg[0])}, ev)
	case kind == "groups" && len(seg) == 1:
		return decodeRow(Groups, model.GroupKey{Tenant: t, Name: model.GroupName(seg[0])}, ev)
	case kind == "policies" && len(seg) == 1:
		return decodeRow(Policies, model.PolicyKey{Tenant: t, Name: model.PolicyName(seg[0])}, ev)
	case kind == "rules" && len(seg) == 2:
		return decodeRow(Rules, model.RuleKey{Tenant: t, Policy: model.PolicyName(seg[0]), Rule: model.RuleID(seg[1])}, ev)
	case kind == "endpoints" && len(seg) == 2:
		n := model.NetworkKey{Tenant: t, Name: model.NetworkName(seg[0])}
		return decodeRow(Endpoints, model.EndpointKey{Network: n, ID: model.EndpointID(seg[1])}, ev)
	case kind == "identities" && len(seg) == 1:
		if n, err := strconv.ParseUint(seg[0], 10, 32); err == nil {
			return decodeRow(Identities, IdentityKey{t, model.Identity(n)}, ev)
		}
	case len(seg) == 1:
		return decodeNamed(ev, t, kind, seg[0])
	}
	return Change{}, nil
}

// decodeRow reads an event of a table whose key was found in the event's key.
func decodeRow[K comparable, V any](t *Table[K, V], k K, ev Event) (Change, error) {
	c := Change{Key: k, Create: ev.KV.Create, Mod: ev.KV.Mod}
	if ev.Deleted() {
		return c, nil
	}
	row, err := t.Decode(ev.KV)
	if err != nil {
		return c, err
	}
	c.Value = row.Value
	return c, nil
}
