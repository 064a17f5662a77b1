package control

import (
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
)

// kind is what the file of each kind of object tells the rest of the package,
// beside its use-cases and its part of the View.
type kind struct {
	name string // as in model.Kind; "" = not one that users write
	// empty refuses that a tenant goes while it has objects of the kind; nil = it has
	// none of them, or they go with others.
	empty *emptyCheck
	// reference is the kind of the references that its objects make, and usedBy says
	// what one means to who would delete its target; "" = none, or their own way.
	reference, usedBy string
}

var (
	registry []kind
	names    = map[reflect.Type]string{} // of the kinds of objects that users write, by the type of the row's key
)

// register enters a kind whose objects are rows with such keys.
func register[K comparable](about kind) kind {
	var key K
	names[reflect.TypeOf(key)] = about.name
	return share(about)
}

// share enters a kind whose objects are rows of another one, or are not noted as written.
func share(about kind) kind {
	registry = append(registry, about)
	return about
}

// kinds returns the kinds of objects that users write, in package model's order.
func kinds() []kind {
	var out []kind
	for _, m := range model.Kinds() {
		if i := slices.IndexFunc(registry, func(k kind) bool { return k.name == m.Name }); i >= 0 {
			out = append(out, registry[i])
		}
	}
	return out
}

// Kinds returns the names of the kinds that there are use-cases for.
func Kinds() []string {
	var out []string
	for _, k := range registry {
		if k.name != "" {
			out = append(out, k.name)
		}
	}
	return out
}
