package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Deletion is the deletion of an object that Delete makes.
type Deletion struct {
	what  string     // verb and object, for errors
	turns []string   // rows, as in Change.serialized
	only  *Condition // nil = none
	do    func(ctx context.Context, u *usecase) error
}

// OnlyAt has Delete make a deletion on a condition; nil = on none.
func (d Deletion) OnlyAt(c *Condition) Deletion {
	d.only = c
	return d
}

// Delete deletes an object. Its errors are of package model's kinds. The revision is of the
// last commit, also with an error; 0 = there was none.
func (c *Committer) Delete(ctx context.Context, a Actor, d Deletion) (store.Revision, error) {
	u := c.as(a)
	u.only = d.only
	free, err := c.takeTurns(ctx, d.what, d.turns)
	if err != nil {
		return 0, err
	}
	defer free()
	err = d.do(ctx, u)
	return u.rev, err
}

// inOne is a deletion in one transaction.
func inOne(what string, do func(tx store.Tx, a Actor) error) Deletion {
	return Deletion{what: what, do: func(ctx context.Context, u *usecase) error {
		_, err := u.update(ctx, what, func(tx store.Tx) error { return do(tx, u.actor) })
		return err
	}}
}

// deleteRow is the deletion of an object to which nothing refers, if checks allow it;
// target may be nil.
func deleteRow[K comparable, V any](table *tables.Table[K, V], k K, target *tables.Target, checks ...func(store.Tx, Actor) error) Deletion {
	return inOne(fmt.Sprintf("delete %s %q", table.Noun(), table.Show(k)), func(tx store.Tx, a Actor) error {
		if _, err := table.Get(tx, k); err != nil {
			return err
		}
		for _, check := range checks {
			if err := check(tx, a); err != nil {
				return err
			}
		}
		if target != nil {
			if err := checkUnreferenced(a.Scope(), tx, *target); err != nil {
				return err
			}
			tables.References.DeleteScope(tx, target.Scope())
		}
		table.Delete(tx, k)
		return nil
	})
}
