package model

import (
	"slices"
	"sync"
)

// Kind is what this package knows of a kind of object that users write. Each is
// registered by the file that describes it; every layer has its own registry of
// the same kinds (docs/design/adding-a-kind.md).
type Kind struct {
	Collection string // in paths of the REST interface, such as "netprofiles"; "" = it has none
	Name       string // of one, in links, in lists to be applied and in messages: "netprofile"
	Order      int    // place in whatever lists kinds; each its own
	NoEffects  []NoEffect
}

var registry []Kind

// register enters a kind. It returns it so that a package variable can call register,
// before any function runs.
func register(k Kind) Kind { //nolint:unparam // the result is for package variables
	for i := range k.NoEffects {
		k.NoEffects[i].Kind = k.Collection
	}
	registry = append(registry, k)
	return k
}

// Kinds returns all kinds in their order; the list must not be changed.
func Kinds() []Kind { return inOrder() }

var inOrder = sync.OnceValue(func() []Kind {
	out := slices.Clone(registry)
	slices.SortFunc(out, func(a, b Kind) int { return a.Order - b.Order })
	return out
})
