package control

import (
	"reflect"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// kind is what the file of each kind of object tells the rest of the package,
// beside its use-cases and its methods of View.
type kind struct {
	name string // as in model.Kind; "" = not one that users write
	// empty refuses that a tenant goes while it has objects of the kind; nil = it has
	// none of them, or they go with others.
	empty *emptiness
	// reference is the kind of the references that its objects make, and usedBy says
	// what one means to who would delete its target; "" = none, or their own way.
	reference, usedBy string
}

var (
	registry []kind
	entries  = map[reflect.Type]func(*View, tables.Change){} // by the type of the key
)

// register enters a kind whose objects are rows of the View. entered hears of
// each change, for indexes: old is nil for a new object, now for one that is
// gone; mod is the revision of the write. It may be nil.
func register[K comparable, V any](r rowsPart[K, V], entered func(v *View, k K, old, now *V, mod store.Revision), about kind) kind {
	var key K
	return enter(key, func(v *View, ch tables.Change) {
		k := ch.Key.(K) //nolint:forcetypeassert // it is registered for that
		now := value[V](ch)
		before, had := r.in(v).set(k, now)
		v.note(about.name, ch)
		if entered == nil {
			return
		}
		var old *V
		if had {
			old = &before
		}
		entered(v, k, old, now, ch.Mod)
	}, about)
}

// enter registers what takes the changes of the rows with such keys.
func enter(key any, f func(*View, tables.Change), about kind) kind {
	entries[reflect.TypeOf(key)] = f
	return share(about)
}

// share registers a kind whose objects are rows that another one has registered.
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

// part is something that a file of this package keeps in the View, such as rows
// or an index. The view's lock guards it.
type part[T any] struct{ n int }

var newParts []func() any

func newPart[T any](empty func() T) part[T] {
	newParts = append(newParts, func() any { return empty() })
	return part[T]{len(newParts) - 1}
}

// in returns the part of a view.
func (p part[T]) in(v *View) T { return v.parts[p.n].(T) } //nolint:forcetypeassert // newPart makes it

// rowsPart are the rows of a kind.
type rowsPart[K comparable, V any] struct{ part[*rows[K, V]] }

// newRowsPart takes whose a row is, nil for kinds that belong to no tenant, and
// the order of lists.
func newRowsPart[K comparable, V any](tenant func(K) model.TenantName, less func(a, b K) int) rowsPart[K, V] {
	if tenant == nil {
		tenant = func(K) model.TenantName { return "" }
	}
	return rowsPart[K, V]{newPart(func() *rows[K, V] { return newRows[K, V](tenant, less) })}
}

// list returns the rows of a tenant, "" = all.
func (p rowsPart[K, V]) list(v *View, t model.TenantName) []V {
	return read(v, func() []V { return p.in(v).list(t) })
}

// find finds a row.
func (p rowsPart[K, V]) find(v *View, k K) (V, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	x, ok := p.in(v).all[k]
	return x, ok
}

// of returns the rows that an index finds.
func (p rowsPart[K, V]) of(v *View, members func() map[K]struct{}) []V {
	return read(v, func() []V { return sorted(members(), p.in(v).all, p.in(v).less) })
}
