package tables

import (
	"fmt"
	"strings"
	"sync"

	"github.com/contiv/netplugin/v2/internal/store"
)

// registry has all tables, each entered by the file that declares it.
var registry []registered

// declare is NewTable for the tables of the store.
func declare[K comparable, V any](spec TableSpec[K, V]) *Table[K, V] {
	t := NewTable(spec)
	registry = append(registry, t)
	return t
}

// Kinds returns the names of the kinds of objects that have a table.
func Kinds() []string {
	var out []string
	for _, t := range registry {
		out = append(out, t.kinds()...)
	}
	return out
}

// registered is a Table whatever its rows are.
type registered interface {
	Noun() string
	Complete() bool
	kinds() []string
	path() string
	decode(names []string, ev store.Event) (Change, error)
	encode(key, value any) (store.KV, error)
	newest() int
	versionOf(value []byte) int
}

// Change is a mirror event in typed form.
type Change struct {
	// Key is the key type of one of the tables: model.NetworkKey for a row of
	// Networks, and so on. It is nil for a key that this program does not know,
	// which a newer one may have written.
	Key any
	// Value is the row (model.Network for a model.NetworkKey, and so on); nil when
	// it was deleted.
	Value       any
	Row         string // where the row lies in the store
	Create, Mod store.Revision
}

// Deleted reports whether the row is gone.
func (c Change) Deleted() bool { return c.Value == nil }

// Decode turns an event of a mirror into typed form. It fails on a row that
// cannot be read, and then still tells the key.
func Decode(ev store.Event) (Change, error) {
	t, names := find(ev.KV.Key)
	if t == nil {
		return Change{}, nil
	}
	return t.decode(names, ev)
}

// Encode is the reverse of Decode: a row as this program writes it. It fails for what is
// no row of any table.
func Encode(key, value any) (store.KV, error) {
	for _, t := range registry {
		if kv, err := t.encode(key, value); err != nil || kv.Key != "" {
			return kv, err
		}
	}
	return store.KV{}, fmt.Errorf("no table has rows %T at keys %T", value, key)
}

// places finds a table by the segments of a key. No segment may be both a word
// and a name at the same place; TestPathsAreDistinct holds that.
type places struct {
	below map[string]*places // by word; "*" = a name
	table registered         // nil: no row ends here
}

var paths = sync.OnceValue(func() *places { return index(registry) })

func index(tables []registered) *places {
	root := &places{below: map[string]*places{}}
	for _, t := range tables {
		at := root
		for part := range strings.SplitSeq(t.path(), "/") {
			if at.below[part] == nil {
				at.below[part] = &places{below: map[string]*places{}}
			}
			at = at.below[part]
		}
		at.table = t
	}
	return root
}
