package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// The key layout, all under /contiv.io/. Each table's Path says where its rows
// lie; names are written by store.Segment.
//
//	state/global/...      what every agent needs: settings, tenants, hosts
//	state/tenant/T/...    what agents with endpoints of tenant T need beside; of
//	                      endpoints, those of the networks that concern them
//	state/alloc/...       create-only rows with an owner, so that two writers who
//	                      want the same address, tag, number or name meet at one
//	                      key; for control alone, agents do not watch it;
//	                      also what applying a set of documents created
//	oper/...              observed status; nothing is compiled from it
//	lock/netplugin/HOST   who has a host's name now, leased
const (
	// StatePrefix holds all intent and all allocations.
	StatePrefix = store.Root + "state/"
	// GlobalPrefix holds what every agent needs.
	GlobalPrefix = StatePrefix + "global/"
	// AllocPrefix holds allocations and reverse references, for control alone.
	AllocPrefix = StatePrefix + "alloc/"
	// OperPrefix holds observed status.
	OperPrefix = store.Root + "oper/"

	tenantsPrefix = StatePrefix + "tenant/"
	configScope   = GlobalPrefix + "config/"
)

// TenantPrefix holds all that an agent with endpoints of the tenant needs
// beside GlobalPrefix.
func TenantPrefix(t model.TenantName) string {
	return tenantsPrefix + store.Segment(string(t)) + "/"
}

// Registered are the prefixes of what agents mirror beside the cluster's state: where the
// control plane listens, and who monitors.
var Registered = []string{OperPrefix + "monitor/", store.Root + "service/"}

// Relayed are the prefixes of all that agents mirror.
func Relayed() []string { return append([]string{GlobalPrefix, tenantsPrefix}, Registered...) }

// tenantRest are the kinds of rows that TenantRest holds.
var tenantRest = []string{"groups", "identities", "netprofiles", "networks", "policies", "replacements", "rules", "services", "staged", "trials"}

// TenantRest are the prefixes of what an agent that has to do with a tenant needs of it
// beside endpoints (EndpointsOf). No endpoint lies in the range that covers them.
func TenantRest(t model.TenantName) []string {
	out := make([]string, len(tenantRest))
	for i, kind := range tenantRest {
		out[i] = TenantPrefix(t) + kind + "/"
	}
	return out
}

// allocOf is the prefix of a tenant's allocations of a kind.
func allocOf(kind string, t model.TenantName) string {
	return AllocPrefix + kind + "/" + store.Segment(string(t)) + "/"
}
