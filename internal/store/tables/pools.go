package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// PoolsKey names a network's row of pools.
type PoolsKey struct{ Network model.NetworkKey }

// Pools are the address pools of a network's groups. Who allocates an address
// has this row in its read set.
type Pools struct {
	Network model.NetworkKey                    `json:"network"`
	Groups  map[model.GroupName]model.AddrRange `json:"groups"`
}

// GroupPools holds one row per network that has pools.
var GroupPools = declare(TableSpec[PoolsKey, Pools]{
	Noun: "address pools", Version: 1, Unlisted: true,
	Path:  "state/alloc/pools/*/*",
	Parse: func(n []string) (PoolsKey, bool) { return PoolsKey{networkKey(n)}, true },
	KeyOf: func(p Pools) PoolsKey { return PoolsKey{p.Network} },
	Show:  func(k PoolsKey) string { return k.Network.String() },
	Scope: func(k PoolsKey) string { return allocOf("pools", k.Network.Tenant) },
	Name:  func(k PoolsKey) string { return store.Segment(string(k.Network.Name)) },
})
