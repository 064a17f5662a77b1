package netctl

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/api"
)

// objectKind is a kind of object without its type: what documents, get, export,
// completion and the tree of commands work on. The file of each kind registers
// one.
type objectKind struct {
	order        int      // place in lists of kinds: after the kinds that objects of this one refer to
	name         string   // kind in documents: the object's type on the wire
	aliases      []string // other names, on the command line and in documents
	placeholders []string // how help calls the name of an object: "NETWORK"
	keyFields    []string // JSON names of the fields that make up the key
	single       string   // key of the only object; empty = there may be many
	seen         bool     // shown by get only: no document has objects in this form
	perTenant    bool
	command      func(*factory) *command // of the kind; nil = it has none of its own
	// asDocument mends an object on its way into an export; nil = nothing to mend.
	asDocument func(o any) any
	// pin writes the tags and addresses that netmaster chose into an object to be
	// exported, and adds its endpoints; nil = the kind has neither.
	pin func(ctx context.Context, o *exportOptions, c *api.Client, d exported) ([]exported, error)
	// within returns an object's name on a line whose earlier arguments name what the
	// object is part of, and whether it is part of that; nil = the kind's objects are
	// part of no other.
	within    func(o any, previous []string) (string, bool)
	typ       reflect.Type
	key       func(o any) string
	shortName func(o any) string // name within its tenant
	tenant    func(o any) string
	list      func(ctx context.Context, c *api.Client) ([]any, error) // ordered by key
	// listTenant lists one tenant's, where a tenant-admin may not list all; nil = it may.
	listTenant func(ctx context.Context, c *api.Client, tenant string) ([]any, error)
	get        func(ctx context.Context, c *api.Client, key string) (any, error)
	remove     func(ctx context.Context, c *api.Client, key string) error // nil = it cannot be deleted by its key
	header     []string
	row        func(o any) []string
	// learn fills in what rows show beyond the objects themselves.
	learn func(ctx context.Context, c *api.Client, list []any) error
	// others returns what is listed behind the objects and is none of the kind; nil = nothing.
	others func(ctx context.Context, c *api.Client, o *getOptions) ([]item, error)
	// wideHeader and wideRow are the columns of -o wide beyond header and row.
	wideHeader []string
	wideRow    func(o any) []string
}

// kindOf completes an objectKind by a listing.
func kindOf[T api.Object, O any](l listing[T, O], k objectKind) *objectKind {
	k.perTenant, k.typ, k.header, k.others = l.kind.perTenant, reflect.TypeFor[T](), l.header, l.others
	k.key = func(o any) string { return of[T](o).ObjectKey() }
	k.shortName = func(o any) string { return l.name(of[T](o)) }
	k.tenant = func(any) string { return "" }
	k.row = func(o any) []string { return l.row(of[T](o)) }
	k.get = func(ctx context.Context, c *api.Client, key string) (any, error) {
		return l.kind.collection(c).Get(ctx, key)
	}
	k.remove = func(ctx context.Context, c *api.Client, key string) error {
		return l.kind.collection(c).Delete(ctx, key)
	}
	k.list = func(ctx context.Context, c *api.Client) ([]any, error) {
		found, err := l.kind.collection(c).List(ctx)
		slices.SortFunc(found, func(a, b T) int { return cmp.Compare(a.ObjectKey(), b.ObjectKey()) })
		return untyped(found), err
	}
	if l.tenant != nil {
		k.tenant = func(o any) string { return l.tenant(of[T](o)) }
	}
	if l.learn != nil {
		k.learn = func(ctx context.Context, c *api.Client, list []any) error {
			typed := make([]T, len(list))
			for i, o := range list {
				typed[i] = of[T](o)
			}
			err := l.learn(ctx, c, typed)
			copy(list, untyped(typed))
			return err
		}
	}
	return &k
}

// kindFor returns the kind of the objects of a type.
func kindFor[T any]() *objectKind {
	typ := reflect.TypeFor[T]()
	return registry[slices.IndexFunc(registry, func(k *objectKind) bool { return k.typ == typ })]
}

// of returns an object of the kind's type; it is one by construction.
func of[T any](o any) T {
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

// register enters a kind.
func register(k *objectKind) *objectKind { //nolint:unparam // the result is for package variables
	registry = append(registry, k)
	return k
}

var registry []*objectKind

// kindsThat returns the kinds for which fit is true, in their order.
func kindsThat(fit func(*objectKind) bool) []*objectKind {
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
func objectKinds() []*objectKind { return kindsThat(func(k *objectKind) bool { return !k.seen }) }

// seenKinds returns the kinds that get shows beside objectKinds: endpoints and hosts.
func seenKinds() []*objectKind { return kindsThat(func(k *objectKind) bool { return k.seen }) }

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

// findKind finds a kind by its name or an alias, in upper or lower case.
func findKind(name string) (*objectKind, error) {
	var all []string
	for _, k := range objectKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if strings.EqualFold(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	return nil, usageErrorf("unknown kind %q; there are %s", name, strings.Join(all, ", "))
}

// findShown is findKind with the kinds that are only shown.
func findShown(name string) (*objectKind, error) {
	var all []string
	for _, k := range seenKinds() {
		for _, n := range append([]string{k.name}, k.aliases...) {
			if strings.EqualFold(n, name) {
				return k, nil
			}
		}
		all = append(all, k.name)
	}
	k, err := findKind(name)
	if err != nil {
		err = usageErrorf("%v, %s", err, strings.Join(all, ", "))
	}
	return k, err
}
