package tables

import (
	"strings"

	"github.com/contiv/netplugin/v2/internal/store"
)

// Record is what is known of a row without its type.
type Record struct {
	Noun    string // what the row is; "" = no table of this program has such rows
	Version int    // that it was written with; 0 = it cannot be read
	Newest  int    // that this program writes
}

// Look tells of a row, whatever table it is of, and its key and value as Decode does. It
// fails on one that cannot be read, and then still tells the key and what it is.
func Look(kv store.KV) (Record, Change, error) {
	t, names := find(kv.Key)
	if t == nil {
		return Record{}, Change{}, nil
	}
	r := Record{Noun: t.Noun(), Newest: t.newest()}
	ch, err := t.decode(names, store.Event{KV: kv})
	if err == nil && ch.Key != nil {
		r.Version = t.versionOf(kv.Value)
	}
	return r, ch, err
}

func (t *Table[K, V]) newest() int { return t.spec.Version }

func (t *Table[K, V]) versionOf(value []byte) int {
	_, version, err := store.DecodeRecord[struct{}](value)
	if err != nil {
		return 0
	}
	return version
}

// find returns the table whose rows have such keys, and the names in the key.
func find(key string) (registered, []string) {
	rest, ok := strings.CutPrefix(key, store.Root)
	if !ok {
		return nil, nil
	}
	at := paths()
	var names []string
	for part := range strings.SplitSeq(rest, "/") {
		if next := at.below[part]; next != nil && part != "*" { // which may be a name, too
			at = next
			continue
		}
		if at = at.below["*"]; at == nil {
			return nil, nil
		}
		name, ok := store.ParseSegment(part)
		if !ok {
			return nil, nil
		}
		names = append(names, name)
	}
	return at.table, names
}
