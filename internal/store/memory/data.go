package memory

import (
	"slices"

	"github.com/contiv/netplugin/v2/internal/store"
)

// Data is all that an in-memory store holds at one moment, without what
// leases hold: a backup of it.
type Data struct {
	rev   store.Revision
	keys  []string
	items map[string][]store.KV

	branches []branch
}

// Data returns what the store holds now.
func (m *Store) Data() *Data {
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	leased := map[string]bool{}
	for _, l := range db.leases {
		for key := range l.keys {
			leased[key] = true
		}
	}
	d := &Data{rev: db.rev, items: map[string][]store.KV{}, branches: slices.Clone(db.branches)}
	for _, key := range db.keys {
		if kv := db.get(key, db.rev); kv.Exists() && !leased[key] {
			d.keys = append(d.keys, key)
			d.items[key] = []store.KV{kv}
		}
	}
	return d
}

// Replace puts other data in the place of the store's, as if its machine had been
// given another disk: mirrors re-list, sessions are lost. bump is added to the
// revision, as a restore from a backup does; 0 = none.
func (m *Store) Replace(d *Data, bump store.Revision) {
	db := m.db
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, l := range db.leases {
		clear(l.keys)
		db.end(l)
	}
	db.rev, db.keys, db.items = d.rev+bump, slices.Clone(d.keys), make(map[string][]store.KV, len(d.items))
	for key, versions := range d.items {
		db.items[key] = slices.Clone(versions)
	}
	db.compacted, db.log = db.rev, nil
	db.generation++
	db.branch(d)
	close(db.changed)
	db.changed = make(chan struct{})
}
