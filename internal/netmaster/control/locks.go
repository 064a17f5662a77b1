package control

import (
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// keyRecorder is a transaction that notes the keys that are written, as far as they may be
// locked.
type keyRecorder struct {
	store.Tx
	keys []string
}

func (w *keyRecorder) note(key string) {
	if tables.Lockable(key) {
		w.keys = append(w.keys, key)
	}
}

func (w *keyRecorder) Put(key string, value []byte, lease store.Session) {
	w.note(key)
	w.Tx.Put(key, value, lease)
}

func (w *keyRecorder) Create(key string, value []byte, lease store.Session) error {
	w.note(key)
	return w.Tx.Create(key, value, lease)
}

func (w *keyRecorder) Delete(key string) {
	w.note(key)
	w.Tx.Delete(key)
}

func (w *keyRecorder) DeletePrefix(prefix string) {
	w.note(prefix)
	w.Tx.DeletePrefix(prefix)
}

// respectLocks makes a use-case's transaction refuse to write what waits to be confirmed,
// but for the change own.
func respectLocks(own string, fn func(store.Tx) error) func(store.Tx) error {
	return func(tx store.Tx) error {
		w := &keyRecorder{Tx: tx}
		if err := fn(w); err != nil || len(w.keys) == 0 {
			return err
		}
		return checkUnlocked(tx, w.keys, own)
	}
}

// checkUnlocked refuses keys that an unconfirmed change other than own has locked. Try writes
// each row that it locks again, unchanged: a transaction that has read one and commits
// later than Try runs again, and finds the lock here. Missing policies have no row; for
// them the list is observed.
func checkUnlocked(tx store.Tx, keys []string, own string) error {
	if slices.ContainsFunc(keys, func(k string) bool { return strings.Contains(k, "/policies/") }) {
		if err := tx.Observe(tables.PendingScope); err != nil {
			return err
		}
	}
	all, err := unconfirmed(tx, own)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if err := all.check(key); err != nil {
			return err
		}
	}
	return nil
}

// pendings are changes that wait to be confirmed.
type pendings []tables.Pending

// unconfirmed reads all changes that wait but own.
func unconfirmed(tx store.Tx, own string) (all pendings, err error) {
	kvs, err := tx.Range(tables.PendingScope, 0)
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs {
		row, err := tables.Pendings.Decode(kv)
		if err != nil {
			return nil, err
		}
		if row.Value.ID != own {
			all = append(all, row.Value)
		}
	}
	return all, nil
}

// unconfirmedFor reads the changes that can have locked the objects of steps. Steps are
// checked by object too: one to the stored values writes nothing, but hosts have others.
// The change that is being confirmed is not among them: its transaction has deleted it.
func unconfirmedFor(tx store.Tx, steps []step) (pendings, error) {
	if !slices.ContainsFunc(steps, func(s step) bool { return tables.Lockable(s.key) }) {
		return nil, nil
	}
	return unconfirmed(tx, "")
}

// check refuses a key that one of them has locked.
func (all pendings) check(key string) error {
	for _, p := range all {
		if p.Locked(key) {
			return model.Errorf(model.ErrConflict, "change %s of the same object is unconfirmed: confirm it (netctl confirm %s) or revert it (netctl revert %s) first", p.ID, p.ID, p.ID)
		}
	}
	return nil
}

// checkNothingPending refuses a tenant of which something waits to be confirmed: a new policy has no
// row that would keep the tenant.
func checkNothingPending(tx store.Tx, k model.TenantName) error {
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
