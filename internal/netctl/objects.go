package netctl

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/base/flags"
)

// collection is how netmaster is asked for the objects of a kind.
type collection struct {
	path string                                                  // in URLs
	list func(ctx context.Context, c *api.Client) ([]any, error) // ordered by key
	// listTenant lists one tenant's, where a tenant-admin may not list all; nil = it may.
	listTenant func(ctx context.Context, c *api.Client, tenant string) ([]any, error)
	get        func(ctx context.Context, c *api.Client, key string) (any, error)
	inspect    func(ctx context.Context, c *api.Client, key string) (any, error) // with its state
	create     func(ctx context.Context, c *api.Client, o any) (any, error)      // or update
	remove     func(ctx context.Context, c *api.Client, key string) error        // nil = it cannot be deleted by its key
}

// objectKind is a kind of object without its type: what documents, get, the commands of
// kinds, export and completion work on. The file of each kind registers one.
type objectKind struct {
	columns[any] // how lists show it
	collection

	order        int      // place in lists of kinds: after the kinds that objects of this one refer to
	name         string   // kind in documents: the object's type on the wire
	noun         string   // in commands and messages: "group"; "" = name
	aliases      []string // other names, on the command line and in documents
	placeholders []string // how help calls the name of an object: "NETWORK"
	arg          string   // likewise in its own commands; "" = the first placeholder
	example      string   // the arguments of an example: "--tenant blue backend"
	keyFields    []string // JSON names of the fields that make up the key
	single       string   // key of the only object; empty = there may be many
	seen         bool     // shown by get only: no document has objects in this form
	perTenant    bool
	typ          reflect.Type
	// asDocument mends an object on its way into an export; nil = nothing to mend.
	asDocument func(o any) any
	// pin writes the tags and addresses that netmaster chose into an object to be
	// exported, and adds its endpoints; nil = the kind has neither.
	pin func(ctx context.Context, o *exportOptions, c *api.Client, d exported) ([]exported, error)
	// within returns an object's name on a line whose earlier arguments name what the
	// object is part of, and whether it is part of that; nil = the kind's objects are
	// part of no other.
	within func(o any, previous []string) (string, bool)
	key    func(o any) string
	// learn fills in what rows show beyond the objects themselves.
	learn func(ctx context.Context, c *api.Client, list []any) error
	// others returns what is listed behind the objects and is none of the kind; nil = nothing.
	others func(ctx context.Context, c *api.Client, o *getOptions) ([]item, error)
}

// tenant is an object's; "" = its kind belongs to no tenant.
func (k *objectKind) tenant(o any) string {
	if !k.perTenant {
		return ""
	}
	tenant, _, _ := strings.Cut(k.key(o), ":")
	return tenant
}

// kindOf completes an objectKind by the collection of its objects and by their columns.
func kindOf[T api.Object, O any](of func(*api.Client) api.Resource[T, O], c columns[T], k objectKind) objectKind {
	k.columns, k.typ, k.path = untypedColumns(c), reflect.TypeFor[T](), of(nil).Collection()
	k.key = func(o any) string { return as[T](o).ObjectKey() }
	k.get = func(ctx context.Context, c *api.Client, key string) (any, error) { return of(c).Get(ctx, key) }
	k.create = func(ctx context.Context, c *api.Client, o any) (any, error) { return of(c).Create(ctx, as[T](o)) }
	k.list = func(ctx context.Context, c *api.Client) ([]any, error) {
		found, err := of(c).List(ctx)
		slices.SortFunc(found, func(a, b T) int { return cmp.Compare(a.ObjectKey(), b.ObjectKey()) })
		return untyped(found), err
	}
	if k.inspect == nil {
		k.inspect = func(ctx context.Context, c *api.Client, key string) (any, error) { return of(c).Inspect(ctx, key) }
	}
	if k.remove == nil {
		k.remove = func(ctx context.Context, c *api.Client, key string) error { return of(c).Delete(ctx, key) }
	}
	return k
}

// as returns an object of the kind's type; it is one by construction.
func as[T any](o any) T {
	t, _ := o.(T)
	return t
}

func untyped[T any](list []T) []any {
	out := make([]any, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}

// register enters a kind. What a kind does not say follows from its key and name.
func register(k objectKind) *objectKind {
	k.noun = cmp.Or(k.noun, k.name)
	if k.arg == "" && len(k.placeholders) > 0 {
		k.arg = k.placeholders[0]
	}
	if k.id == nil {
		k.id = func(o any) string { return strings.TrimPrefix(k.key(o), k.tenant(o)+":") }
	}
	registry = append(registry, &k)
	return &k
}

var registry []*objectKind

// kindsWhere returns the kinds for which fit is true, in their order.
func kindsWhere(fit func(*objectKind) bool) []*objectKind {
	var out []*objectKind
	for _, k := range registry {
		if fit(k) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b *objectKind) int { return a.order - b.order })
	return out
}

// objectKinds returns the kinds of documents in the order in which export writes
// them, but for endpoints.
func objectKinds() []*objectKind { return kindsWhere(func(k *objectKind) bool { return !k.seen }) }

// readOnlyKinds returns the kinds that get shows beside objectKinds: endpoints and hosts.
func readOnlyKinds() []*objectKind { return kindsWhere(func(k *objectKind) bool { return k.seen }) }

// Kinds returns the names of the kinds of documents, in no particular order.
func Kinds() []string {
	out := []string{endpointKind}
	for _, k := range objectKinds() {
		out = append(out, k.name)
	}
	return out
}

// linked shows a set of links by their names.
func linked(set api.LinkSet) string {
	var names []string
	for key := range set {
		names = append(names, lastPart(key))
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// sameKind compares names of kinds in the spellings that people use: "app-profiles" is
// appProfile.
func sameKind(a, b string) bool {
	singular := func(s string) string {
		s = strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(s), "-", ""), "s")
		if stem, plural := strings.CutSuffix(s, "ie"); plural {
			return stem + "y"
		}
		return s
	}
	return singular(a) == singular(b)
}

// findKind finds a kind by its name or an alias, as sameKind compares them.
func findKind(name string) (*objectKind, error) {
	var all []string
	for _, k := range objectKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if sameKind(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	return nil, flags.Usagef("unknown kind %q; there are %s", name, strings.Join(all, ", "))
}

// findShown is findKind with the kinds that are only shown.
func findShown(name string) (*objectKind, error) {
	var all []string
	for _, k := range readOnlyKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if sameKind(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	k, err := findKind(name)
	if err != nil {
		err = flags.Usagef("%v, %s", err, strings.Join(all, ", "))
	}
	return k, err
}
