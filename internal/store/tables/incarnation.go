package tables

import "github.com/contiv/netplugin/v2/internal/store"

// IncarnationKey is the key of the only row of Incarnations.
type IncarnationKey struct{}

// Incarnations holds the store's identity, at store.StoreIdentityKey.
var Incarnations = declare(TableSpec[IncarnationKey, store.Incarnation]{
	Noun: "store identity", Version: 1, Unlisted: true,
	Path:  "state/global/config/store",
	Parse: func([]string) (IncarnationKey, bool) { return IncarnationKey{}, true },
	KeyOf: func(store.Incarnation) IncarnationKey { return IncarnationKey{} },
	Show:  func(IncarnationKey) string { return "store" },
	Scope: func(IncarnationKey) string { return configScope },
	Name:  func(IncarnationKey) string { return "store" },
})
