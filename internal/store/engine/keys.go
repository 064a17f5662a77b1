package engine

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/store"
)

// Keys of the engine itself; no mirror delivers them.
const (
	// genPrefix + scope is the generation of a scope.
	genPrefix = store.Root + "gen/"
	// sweptKey is put whenever generations are removed: who has observed a scope
	// without one compares it.
	sweptKey = store.Root + "gen-swept"
	// reservationPrefix + scope is the claim of an observer that conflicted too often.
	reservationPrefix = store.Root + "claim/"
)

func genKey(scope string) string { return genPrefix + strings.TrimPrefix(scope, store.Root) }
func reservationKey(scope string) string {
	return reservationPrefix + strings.TrimPrefix(scope, store.Root)
}
