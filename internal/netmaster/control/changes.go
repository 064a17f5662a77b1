package control

import (
	"context"
	"fmt"
	"reflect"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Ranks of changes: an object refers to objects of lower ranks only.
const (
	rankGlobal = iota
	rankTenant
	rankSettings // net profiles, external contracts, policies
	rankNetwork
	rankGroup
	rankMember // rules, app profiles, services, network policies
	rankPolicyRule
	rankDefaultNetwork
	rankEndpoint
)

// changeOf builds a change from its parts. put writes the valid value, or what
// it makes of it.
func changeOf[K comparable, R any, V model.Validator](rank int, table *tables.Table[K, R], k K, valid model.Valid[V], put func(context.Context, store.Tx, *allocator) error) Change {
	return Change{
		rank: rank,
		what: fmt.Sprintf("put %s %q", table.Noun(), table.Show(k)),
		key:  table.Key(k),
		bad:  valid.Err(),
		read: func(tx store.Tx) (any, bool, error) {
			row, err := table.Peek(tx, k)
			return row.Value, row.Exists(), err
		},
		put: put,
	}
}

// inContivWords makes a change tell the object in the words in which it was asked.
func inContivWords[G interface{ Contiv() (V, bool) }, V any](ch *Change) {
	read := ch.read
	ch.read = func(tx store.Tx) (any, bool, error) {
		row, ok, err := read(tx)
		if err != nil || !ok {
			return nil, false, err
		}
		v, ok := row.(G).Contiv()
		return v, ok, nil
	}
}

// rowChange is the change of an object of a tenant that setRow writes.
func rowChange[K comparable, V model.Validator](t model.TenantName, table *tables.Table[K, V], valid model.Valid[V]) Change {
	k := table.KeyOf(valid.Value())
	return changeOf(rankSettings, table, k, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return setRow(tx, t, table, k, valid.Value())
	})
}

// setRow creates or replaces an object of a tenant that has neither immutable
// fields nor references of its own. An equal one is left as it is.
func setRow[K comparable, V any](tx store.Tx, t model.TenantName, table *tables.Table[K, V], k K, v V) error {
	if err := tx.Prefetch(tables.Tenants.Key(t), table.Key(k)); err != nil {
		return err
	}
	if _, err := tables.Tenants.Get(tx, t); err != nil {
		return err
	}
	old, err := table.Find(tx, k)
	if err != nil || old.Exists() && reflect.DeepEqual(old.Value, v) {
		return err
	}
	return table.Put(tx, v)
}
