package control

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// written is a transaction that notes the keys that are written, as far as they may be
// locked.
type written struct {
	store.Tx
	keys []string
}

func (w *written) note(key string) {
	if tables.Lockable(key) {
		w.keys = append(w.keys, key)
	}
}

func (w *written) Put(key string, value []byte, lease store.Session) {
	w.note(key)
	w.Tx.Put(key, value, lease)
}

func (w *written) Create(key string, value []byte, lease store.Session) error {
	w.note(key)
	return w.Tx.Create(key, value, lease)
}

func (w *written) Delete(key string) {
	w.note(key)
	w.Tx.Delete(key)
}

func (w *written) DeletePrefix(prefix string) {
	w.note(prefix)
	w.Tx.DeletePrefix(prefix)
}

// heedingLocks makes a use-case's transaction refuse to write what waits to be confirmed,
// but for the change own.
func heedingLocks(own string, fn func(store.Tx) error) func(store.Tx) error {
	return func(tx store.Tx) error {
		w := &written{Tx: tx}
		if err := fn(w); err != nil || len(w.keys) == 0 {
			return err
		}
		return unlocked(tx, w.keys, own)
	}
}

// unlocked refuses keys that an unconfirmed change other than own has locked. Try writes
// each row that it locks again, unchanged: a transaction that has read one and commits
// later than Try runs again, and finds the lock here. Missing policies have no row; for
// them the list is observed.
func unlocked(tx store.Tx, keys []string, own string) error {
	if slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, "/policies/") }) {
		if err := tx.Observe(tables.PendingScope); err != nil {
			return err
		}
	}
	kvs, err := tx.Range(tables.PendingScope, 0)
	if err != nil {
		return err
	}
	for _, kv := range kvs {
		row, err := tables.Pendings.Decode(kv)
		if err != nil {
			return err
		}
		if p := row.Value; p.ID != own && slices.ContainsFunc(keys, p.Locked) {
			return model.Errorf(model.ErrConflict, "change %s of the same object is unconfirmed: confirm it (netctl confirm %s) or revert it (netctl revert %s) first", p.ID, p.ID, p.ID)
		}
	}
	return nil
}

// notOnTrial refuses a tenant of which something waits to be confirmed: a new policy has no
// row that would keep the tenant.
func notOnTrial(tx store.Tx, k model.TenantName) error {
	all, err := tables.Pendings.List(tx, tables.PendingScope)
	if err != nil {
		return err
	}
	for _, p := range all {
		if slices.Contains(p.Tenants, k) {
			return model.Errorf(model.ErrConflict, "change %s of it is unconfirmed: confirm it (netctl confirm %s) or revert it (netctl revert %s) first", p.ID, p.ID, p.ID)
		}
	}
	return nil
}
