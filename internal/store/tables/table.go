package tables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// TableSpec says where the rows of a table lie. A declaration reads
//
//	var Networks = declare(TableSpec[model.NetworkKey, model.Network]{
//		Kinds:   []string{"network"},
//		Noun:    "network",
//		Version: 1,
//		Path:    "state/tenant/*/networks/*",
//		Parse:   func(n []string) (model.NetworkKey, bool) { ... },
//		KeyOf:   func(n model.Network) model.NetworkKey { return n.Key },
//		Scope:   func(k model.NetworkKey) string { return NetworksOf(k.Tenant) },   // ".../state/tenant/blue/networks/"
//		Name:    func(k model.NetworkKey) string { return store.Segment(string(k.Name)) },
//	})
//
// and a use-case
//
//	nets, err := tables.Networks.List(tx, tables.NetworksOf(tenant)) // phantom-protected
//	err = tables.Networks.Create(tx, network)
type TableSpec[K comparable, V any] struct {
	// Kinds are those of the objects that users write (model.Kind.Name) and that rows
	// are; nil = rows are none.
	Kinds   []string
	Noun    string // what a row is, for error texts: "network"
	Version int    // version of the record, from 1; see store.EncodeRecord
	// Path is where rows lie under store.Root, "*" standing for a name:
	// "state/tenant/*/networks/*". Parse makes a key of the names, unescaped;
	// false when Name never makes such ones.
	Path  string
	Parse func(names []string) (K, bool)
	KeyOf func(V) K      // the key that a value says of itself
	Show  func(K) string // the key as people write it, for error texts; nil = fmt.Sprint
	// Scope is the prefix function: the prefix, ending in "/", that holds the row
	// and its siblings. It is also the scope of phantom protection: List takes a
	// scope, every write touches its row's scope. Choose it as narrow as the
	// lists that transactions need (networks of a tenant, references to a
	// group), since a lister conflicts with every writer of its scope.
	Scope func(K) string
	// Name is the row's key under Scope; make it of store.Segment.
	Name func(K) string
	// Unlisted tables (allocations: rows only ever reached by key) spend no
	// operation on a generation; their List and Any fail.
	Unlisted bool
	// Old reads the value of a record that is older than Version, nil = as V. What
	// is written over such a record keeps none of its fields.
	Old func(value []byte) (V, error)
}

// Table gives typed access to the rows of one kind inside a transaction.
type Table[K comparable, V any] struct{ spec TableSpec[K, V] }

// NewTable declares a table. The spec is a constant of the program: every field
// but Kinds, Show and Unlisted is needed, and TestTablesAreComplete holds that.
func NewTable[K comparable, V any](spec TableSpec[K, V]) *Table[K, V] {
	if spec.Show == nil {
		spec.Show = func(k K) string { return fmt.Sprint(k) }
	}
	return &Table[K, V]{spec}
}

// Complete reports whether the declaration has all that the table needs.
func (t *Table[K, V]) Complete() bool {
	s := t.spec
	return s.Noun != "" && s.Version >= 1 && s.Path != "" && s.Parse != nil && s.KeyOf != nil && s.Scope != nil && s.Name != nil
}

// Row is a value with the revisions of its first and last write.
type Row[V any] struct {
	Value   V
	Version int            // of the record; newer than the table's means readable only
	Create  store.Revision // 0 = there is no such row; Pending inside the transaction that writes it
	Mod     store.Revision
}

// Exists reports whether the row was there.
func (r Row[V]) Exists() bool { return r.Create != 0 }

// Key returns the store key of a row: for Tx.Prefetch and Tx.Require.
func (t *Table[K, V]) Key(k K) string { return t.spec.Scope(k) + t.spec.Name(k) }

// Scope returns the scope, and prefix, of a row.
func (t *Table[K, V]) Scope(k K) string { return t.spec.Scope(k) }

// Noun returns what a row is called in texts.
func (t *Table[K, V]) Noun() string { return t.spec.Noun }

// Show returns a key as people write it.
func (t *Table[K, V]) Show(k K) string { return t.spec.Show(k) }

// KeyOf returns the key that a value says of itself.
func (t *Table[K, V]) KeyOf(v V) K { return t.spec.KeyOf(v) }

func (t *Table[K, V]) kinds() []string { return t.spec.Kinds }

func (t *Table[K, V]) path() string { return t.spec.Path }

// decode reads an event of a row whose key has the given names.
func (t *Table[K, V]) decode(names []string, ev store.Event) (Change, error) {
	k, ok := t.spec.Parse(names)
	if !ok {
		return Change{}, nil
	}
	c := Change{Key: k, Row: ev.KV.Key, Create: ev.KV.Create, Mod: ev.KV.Mod}
	if ev.Deleted() {
		return c, nil
	}
	row, err := t.Decode(ev.KV)
	if err != nil {
		return c, err
	}
	c.Value = row.Value
	return c, nil
}

// encode writes a row if it is one of this table, else nothing.
func (t *Table[K, V]) encode(key, value any) (store.KV, error) {
	k, mine := key.(K)
	v, is := value.(V)
	if !mine || !is {
		return store.KV{}, nil
	}
	at := t.Key(k)
	of, names := find(at)
	if of != registered(t) {
		return store.KV{}, nil
	}
	if back, ok := t.spec.Parse(names); !ok || any(back) != key { // two tables may have keys of one type
		return store.KV{}, nil
	}
	b, err := store.EncodeRecord(t.spec.Version, v)
	if err != nil {
		return store.KV{}, fmt.Errorf("write %s %q: %w", t.spec.Noun, t.spec.Show(k), err)
	}
	return store.KV{Key: at, Value: b}, nil
}

// Decode reads a row from what the store holds, for mirrors. A missing key is
// a Row that does not exist.
func (t *Table[K, V]) Decode(kv store.KV) (Row[V], error) {
	if !kv.Exists() {
		return Row[V]{}, nil
	}
	v, version, err := store.DecodeRecord[V](kv.Value)
	if t.old(version) && err == nil {
		v, err = t.spec.Old(kv.Value)
	}
	if err != nil {
		return Row[V]{}, fmt.Errorf("read %s at %s: %w", t.spec.Noun, kv.Key, err)
	}
	if own := t.Key(t.spec.KeyOf(v)); own != kv.Key { // the event of its deletion would name that other key
		return Row[V]{}, fmt.Errorf("read %s at %s: it has the record of %s", t.spec.Noun, kv.Key, own)
	}
	return Row[V]{Value: v, Version: version, Create: kv.Create, Mod: kv.Mod}, nil
}

// old reports whether a version of the record is read by Old.
func (t *Table[K, V]) old(version int) bool { return t.spec.Old != nil && version < t.spec.Version }

// Find reads a row into the read set. A missing one is a Row that does not
// exist, without error.
func (t *Table[K, V]) Find(tx store.Tx, k K) (Row[V], error) {
	kv, err := tx.Get(t.Key(k))
	if err != nil {
		return Row[V]{}, err
	}
	return t.Decode(kv)
}

// Get reads a row into the read set: the commit fails when the row has changed
// by then. A missing row is model.ErrNotFound.
func (t *Table[K, V]) Get(tx store.Tx, k K) (V, error) {
	row, err := t.Find(tx, k)
	if err == nil && !row.Exists() {
		err = t.notFound(k)
	}
	return row.Value, err
}

// Peek reads a row like Find, but the commit does not depend on it.
func (t *Table[K, V]) Peek(tx store.Tx, k K) (Row[V], error) {
	kv, err := tx.Peek(t.Key(k))
	if err != nil {
		return Row[V]{}, err
	}
	return t.Decode(kv)
}

func (t *Table[K, V]) notFound(k K) error {
	return model.Errorf(model.ErrNotFound, "%s %q does not exist", t.spec.Noun, t.spec.Show(k))
}

// WriteOption adjusts one write of a row.
type WriteOption func(*writeOptions)

type writeOptions struct {
	lease store.Session
	quiet bool
}

// Untouched has a write touch no scope: the caller touches a scope that all lists of the
// row observe as well.
func Untouched() WriteOption { return func(o *writeOptions) { o.quiet = true } }

// WithLease makes the row vanish with the session.
func WithLease(s store.Session) WriteOption { return func(o *writeOptions) { o.lease = s } }

func optionsOf(opts []WriteOption) (o writeOptions) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Create writes a row that must not exist; otherwise model.ErrExists, now or in
// the run after a conflict.
func (t *Table[K, V]) Create(tx store.Tx, v V, opts ...WriteOption) error {
	k := t.spec.KeyOf(v)
	b, err := store.EncodeRecord(t.spec.Version, v)
	if err != nil {
		return fmt.Errorf("write %s %q: %w", t.spec.Noun, t.spec.Show(k), err)
	}
	o := optionsOf(opts)
	if err := tx.Create(t.Key(k), b, o.lease); err != nil {
		if errors.Is(err, model.ErrExists) {
			return model.Errorf(model.ErrExists, "%s %q exists already", t.spec.Noun, t.spec.Show(k))
		}
		return err
	}
	t.touchUnless(o.quiet, tx, k)
	return nil
}

// Put writes a row, new or not. It reads the present one into the read set, to
// keep fields that this program does not know; a row of a newer version is not
// written: ErrNewerRecord.
func (t *Table[K, V]) Put(tx store.Tx, v V, opts ...WriteOption) error {
	k := t.spec.KeyOf(v)
	key := t.Key(k)
	old, err := tx.Get(key)
	if err != nil {
		return err
	}
	var b []byte
	if row, unreadable := t.Decode(old); old.Exists() && (unreadable != nil || !t.old(row.Version)) {
		b, err = store.ReplaceRecord(t.spec.Version, old.Value, v)
	} else {
		b, err = store.EncodeRecord(t.spec.Version, v)
	}
	if err != nil {
		return fmt.Errorf("write %s %q: %w", t.spec.Noun, t.spec.Show(k), err)
	}
	o := optionsOf(opts)
	tx.Put(key, b, o.lease)
	t.touchUnless(o.quiet, tx, k)
	return nil
}

// Delete removes a row blindly; absent is fine, and a newer version too.
func (t *Table[K, V]) Delete(tx store.Tx, k K) {
	tx.Delete(t.Key(k))
	t.touchUnless(false, tx, k)
}

// DeleteScope removes all rows of a scope; one operation.
func (t *Table[K, V]) DeleteScope(tx store.Tx, scope string) {
	tx.DeletePrefix(scope)
	if !t.spec.Unlisted {
		tx.Touch(scope)
	}
}

func (t *Table[K, V]) touchUnless(quiet bool, tx store.Tx, k K) {
	if !t.spec.Unlisted && !quiet {
		tx.Touch(t.spec.Scope(k))
	}
}

// List reads all rows of a scope, in key order. The commit fails when any row
// of the scope was created, changed or deleted by then.
func (t *Table[K, V]) List(tx store.Tx, scope string) ([]V, error) { return t.list(tx, scope, 0) }

// Any reports whether a scope has a row, and returns the first, with the same
// protection as List.
func (t *Table[K, V]) Any(tx store.Tx, scope string) (V, bool, error) {
	rows, err := t.list(tx, scope, 1)
	if err != nil || len(rows) == 0 {
		var none V
		return none, false, err
	}
	return rows[0], true, nil
}

func (t *Table[K, V]) list(tx store.Tx, scope string, limit int) ([]V, error) {
	if t.spec.Unlisted {
		return nil, fmt.Errorf("list %s: the table is declared Unlisted", t.spec.Noun)
	}
	if !strings.HasSuffix(scope, "/") {
		return nil, fmt.Errorf("list %s: %q is not a scope", t.spec.Noun, scope)
	}
	if err := tx.Observe(scope); err != nil {
		return nil, err
	}
	kvs, err := tx.Range(scope, limit)
	if err != nil {
		return nil, err
	}
	values := make([]V, 0, len(kvs))
	for _, kv := range kvs {
		row, err := t.Decode(kv)
		if err != nil {
			return nil, err
		}
		values = append(values, row.Value)
	}
	return values, nil
}
