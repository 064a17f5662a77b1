package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// InSet makes a change note, where it creates its object, that a set of applied documents
// has created it.
func (os *Ownership) InSet(a Actor, ch Change, set string, o model.Owned) Change {
	if !a.admin {
		tenant, _, _ := strings.Cut(o.Key, ":")
		set = tenantSet(tenant, set)
	}
	member := tables.SetMember{SetMemberKey: tables.SetMemberKey{Set: set, Kind: o.Kind, Key: o.Key}, Row: ch.key}
	put, alone := ch.put, ch.alone
	ch.put = func(ctx context.Context, tx store.Tx, cl *allocator) error {
		was, err := tx.Get(ch.key)
		if err != nil {
			return err
		}
		if err := put(ctx, tx, cl); err != nil || was.Exists() {
			return err
		}
		return tables.SetMembers.Put(tx, member)
	}
	if alone == nil {
		return ch
	}
	ch.alone = func(ctx context.Context, u *usecase) (any, error) {
		was, err := os.commits.store.Get(ctx, ch.key)
		if err != nil {
			return nil, err
		}
		object, err := alone(ctx, u)
		if err == nil && !was.Exists() {
			_, err = u.update(ctx, "note a member of a set", func(tx store.Tx) error { return tables.SetMembers.Put(tx, member) })
		}
		return object, err
	}
	return ch
}

// forgetAtOnce is how many members of a set one transaction forgets.
const forgetAtOnce = 20

// tenantSet names the set in which administrators of a tenant have its objects: another
// than the cluster administrators' set of that name, and than other tenants'.
func tenantSet(tenant, set string) string { return tenant + ":" + set }

// SetMembers returns the existing objects that a set of the actor has created.
func (os *Ownership) SetMembers(ctx context.Context, a Actor, set string) (map[model.Owned]bool, error) {
	if a.admin {
		return os.membersOf(ctx, a, set)
	}
	all := map[model.Owned]bool{}
	for _, tenant := range a.tenants {
		members, err := os.membersOf(ctx, a, tenantSet(string(tenant), set))
		if err != nil {
			return nil, err
		}
		maps.Copy(all, members)
	}
	return all, nil
}

// membersOf returns the existing objects that a set has created. It forgets deleted objects
// and objects that others created again.
func (os *Ownership) membersOf(ctx context.Context, a Actor, set string) (map[model.Owned]bool, error) {
	kvs, _, err := os.commits.store.Range(ctx, tables.SetMembersOf(set))
	if err != nil {
		return nil, fmt.Errorf("read the set %q: %w", set, err)
	}
	members := map[model.Owned]bool{}
	var gone []store.KV
	_, err = os.commits.update(ctx, a, "read the set "+set, func(tx store.Tx) error {
		clear(members)
		gone, err = notThere(tx, kvs, store.Tx.Peek, func(m tables.SetMember) { members[model.Owned{Kind: m.Kind, Key: m.Key}] = true })
		return err
	})
	for some := range slices.Chunk(gone, forgetAtOnce) {
		if err != nil {
			break
		}
		_, err = os.commits.update(ctx, a, "forget members of the set "+set, func(tx store.Tx) error {
			gone, err := notThere(tx, some, store.Tx.Get, func(tables.SetMember) {})
			for _, kv := range gone {
				tx.Delete(kv.Key)
			}
			return err
		})
	}
	return members, err
}

// notThere returns the rows of members whose objects are not there, or are others that
// were created later, and calls there for the rest.
func notThere(tx store.Tx, kvs []store.KV, read func(store.Tx, string) (store.KV, error), there func(tables.SetMember)) (gone []store.KV, err error) {
	rows, objects := make([]tables.SetMember, len(kvs)), make([]string, len(kvs))
	for i, kv := range kvs {
		row, err := tables.SetMembers.Decode(kv)
		if err != nil {
			return nil, err
		}
		rows[i], objects[i] = row.Value, row.Value.Row
	}
	if err := tx.Prefetch(objects...); err != nil {
		return nil, err
	}
	for i, m := range rows {
		object, err := read(tx, m.Row)
		switch {
		case err != nil:
			return nil, err
		case !object.Exists() || object.Create > kvs[i].Mod:
			gone = append(gone, kvs[i])
		default:
			there(m)
		}
	}
	return gone, nil
}
