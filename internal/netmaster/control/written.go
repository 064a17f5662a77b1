package control

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Written returns the revision of the last write of an object that users write, as far
// as the view has it: 0 = there is none. A network policy is written with each of its rules.
// Of endpoints and hosts it keeps none. kind is as in lists to be applied.
func (rv *RevisionView) Written(kind, key string) store.Revision {
	return read(rv.mu, func() store.Revision { return rv.written[writtenKeyOf(kind, key)].rev })
}

type writtenKey struct{ kind, key string }

func writtenKeyOf(kind, key string) writtenKey {
	if kind == "networkPolicy" { // they are rows of the same table
		kind = "policy"
	}
	return writtenKey{kind, key}
}

// lastWrite is where an object's row lies, and the revision of its last write.
type lastWrite struct {
	row string
	rev store.Revision
}

// note keeps the revision of a change.
func (rv *RevisionView) note(kind string, ch tables.Change) {
	if kind == "" {
		return
	}
	if fabricKinds[kind] {
		rv.fabric.Tell()
	}
	k := writtenKey{kind, fmt.Sprint(ch.Key)}
	switch key := ch.Key.(type) { // those whose text is not what users write
	case tables.GlobalKey, tables.AciGwKey:
		k.key = kind
	case tables.BgpKey:
		k.key = string(key.Host)
	}
	if ch.Deleted() {
		delete(rv.written, k)
	} else {
		rv.written[k] = lastWrite{ch.Row, ch.Mod}
	}
}
