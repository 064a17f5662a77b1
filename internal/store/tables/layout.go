package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// The key layout, all under /contiv.io/. Each table's Path says where its rows
// lie; names are written by store.Segment.
//
//	state/global/...      what every agent needs: settings, tenants, hosts
//	state/tenant/T/...    what agents with endpoints of tenant T need beside
//	state/alloc/...       create-only rows with an owner, so that two writers who
//	                      want the same address, tag, number or name meet at one
//	                      key; for control alone, agents do not watch it
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

// allocOf is the prefix of a tenant's allocations of a kind.
func allocOf(kind string, t model.TenantName) string {
	return AllocPrefix + kind + "/" + store.Segment(string(t)) + "/"
}
