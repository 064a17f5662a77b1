package tables

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// NameKey is a name of a tenant that a network or a group has.
type NameKey struct {
	Tenant model.TenantName `json:"tenant"`
	Name   string           `json:"name"`
}

// Name says what has the name.
type Name struct {
	NameKey
	Kind string `json:"kind"` // "network" or "endpoint group"
}

// Names holds the names of networks and groups by tenant: they share one name
// space.
var Names = declare(TableSpec[NameKey, Name]{
	Noun: "name", Version: 1, Unlisted: true,
	Path:  "state/alloc/name/*/*",
	Parse: func(n []string) (NameKey, bool) { return NameKey{model.TenantName(n[0]), n[1]}, true },
	KeyOf: func(n Name) NameKey { return n.NameKey },
	Show:  func(k NameKey) string { return string(k.Tenant) + ":" + k.Name },
	Scope: func(k NameKey) string { return allocOf("name", k.Tenant) },
	Name:  func(k NameKey) string { return store.Segment(k.Name) },
})
