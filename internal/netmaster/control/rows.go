package control

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// rows are the objects of one kind, with sorted lists that are made when asked
// for and kept until something changes. Writers hold the view's lock, readers
// its read lock.
type rows[K comparable, V any] struct {
	lock   *sync.RWMutex // the View's
	all    map[K]V
	of     index[model.TenantName, K] // so that a tenant's list costs what the tenant has
	tenant func(K) model.TenantName   // "" for kinds that belong to no tenant
	less   func(a, b K) int

	mu    sync.Mutex // guards lists among readers
	lists map[model.TenantName][]V
}

// newRows takes the View's lock, whose a row is, nil for kinds that belong to no tenant,
// and the order of lists.
func newRows[K comparable, V any](lock *sync.RWMutex, tenant func(K) model.TenantName, less func(a, b K) int) *rows[K, V] {
	if tenant == nil {
		tenant = func(K) model.TenantName { return "" }
	}
	r := &rows[K, V]{lock: lock, tenant: tenant, less: less}
	r.reset()
	return r
}

// reset empties the rows, as do the resets of the View's parts.
func (r *rows[K, V]) reset() {
	r.all, r.of, r.lists = map[K]V{}, index[model.TenantName, K]{}, map[model.TenantName][]V{}
}

// enter enters a change of a row: old is nil for a new one, now for one that is gone.
func (r *rows[K, V]) enter(ch tables.Change) (k K, old, now *V) {
	k = ch.Key.(K) //nolint:forcetypeassert // the caller knows it
	now = value[V](ch)
	if before, had := r.set(k, now); had {
		old = &before
	}
	return k, old, now
}

// find finds a row.
func (r *rows[K, V]) find(k K) (V, bool) {
	r.lock.RLock()
	defer r.lock.RUnlock()
	x, ok := r.all[k]
	return x, ok
}

// byIndex returns the rows that an index finds.
func (r *rows[K, V]) byIndex(members func() map[K]struct{}) []V {
	return read(r.lock, func() []V { return sorted(members(), r.all, r.less) })
}

// list returns the rows of a tenant, "" = all.
func (r *rows[K, V]) list(t model.TenantName) []V {
	return read(r.lock, func() []V { return r.listed(t) })
}

// set stores a value, or removes the row when there is none, and returns what
// was there.
func (r *rows[K, V]) set(k K, v *V) (old V, had bool) {
	old, had = r.all[k]
	switch {
	case v != nil:
		r.all[k] = *v
		r.of.add(r.tenant(k), k)
	case had:
		delete(r.all, k)
		r.of.remove(r.tenant(k), k)
	}
	if len(r.lists) > 0 {
		delete(r.lists, "")
		delete(r.lists, r.tenant(k))
	}
	return old, had
}

// listed returns the rows of a tenant ("" = all) in key order; it must not be changed.
// The caller holds the View's lock.
func (r *rows[K, V]) listed(t model.TenantName) []V {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, ok := r.lists[t]; ok {
		return l
	}
	var l []V
	if t == "" {
		l = sorted(r.all, r.all, r.less)
	} else {
		l = sorted(r.of[t], r.all, r.less)
	}
	r.lists[t] = l
	return l
}

// ownRows are rows whatever they are.
type ownRows interface {
	put(ch tables.Change)
	reset()
}

func (r *rows[K, V]) put(ch tables.Change) { r.enter(ch) }

var ownRowsOf = map[reflect.Type]func(lock *sync.RWMutex) ownRows{} // by the type of the row's key

// rowsOf gives each view the rows of a kind of tenants' objects that needs no index, and
// returns what finds them in a view. name is the object's, within its tenant.
func rowsOf[K comparable, V any](name func(K) (model.TenantName, string)) func(*View) *rows[K, V] {
	key := reflect.TypeFor[K]()
	ownRowsOf[key] = func(lock *sync.RWMutex) ownRows {
		return newRows[K, V](lock, func(k K) model.TenantName { t, _ := name(k); return t }, func(a, b K) int {
			ta, na := name(a)
			tb, nb := name(b)
			return less(ta, tb, na, nb)
		})
	}
	return func(v *View) *rows[K, V] { return v.own[key].(*rows[K, V]) } //nolint:forcetypeassert // made above
}

// index finds the members that belong to a key.
type index[K, M comparable] map[K]map[M]struct{}

func (x index[K, M]) add(k K, m M) {
	if x[k] == nil {
		x[k] = map[M]struct{}{}
	}
	x[k][m] = struct{}{}
}

func (x index[K, M]) remove(k K, m M) {
	delete(x[k], m)
	if len(x[k]) == 0 {
		delete(x, k)
	}
}

// put is add, or else remove.
func (x index[K, M]) put(k K, m M, in bool) {
	if in {
		x.add(k, m)
	} else {
		x.remove(k, m)
	}
}

// lists keeps sorted lists of members, by what they belong to, until the
// members change. Writers hold the view's lock, readers its read lock.
type lists[V any] struct {
	mu sync.Mutex
	of map[any][]V
}

// drop forgets the lists of the owners.
func (l *lists[V]) drop(owners ...any) {
	if len(l.of) == 0 {
		return
	}
	for _, k := range owners {
		delete(l.of, k)
	}
}

// get returns the list of an owner, made by list if need be.
func (l *lists[V]) get(owner any, list func() []V) []V {
	l.mu.Lock()
	defer l.mu.Unlock()
	vs, ok := l.of[owner]
	if !ok {
		vs = list()
		if l.of == nil {
			l.of = map[any][]V{}
		}
		l.of[owner] = vs
	}
	return vs
}

// sorted returns the values of an index's members in key order.
func sorted[M comparable, V, X any](members map[M]X, all map[M]V, less func(a, b M) int) []V {
	keys := make([]M, 0, len(members))
	for m := range members {
		keys = append(keys, m)
	}
	slices.SortFunc(keys, less)
	out := make([]V, 0, len(keys))
	for _, k := range keys {
		if v, ok := all[k]; ok {
			out = append(out, v)
		}
	}
	return out
}

func less(t1, t2 model.TenantName, n1, n2 string) int {
	return cmp.Or(cmp.Compare(t1, t2), cmp.Compare(n1, n2))
}
