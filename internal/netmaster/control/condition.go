package control

import (
	"context"
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ErrChanged means that an object does not have the revision that a write of it asks for.
// It is of kind model.ErrConflict.
var ErrChanged = model.Errorf(model.ErrConflict, "it has changed")

// condition is what a use-case's first commit depends on.
type condition struct {
	object string
	row    string // "" = the object is not there
	rev    store.Revision
	met    bool
}

type conditions struct{}

// OnlyAt returns a context for a use-case that writes or deletes one object, which v holds:
// its first commit is made only while the object has a revision of Written, else the error
// is ErrChanged. kind and key are as in Written.
func (rv *RevisionView) OnlyAt(ctx context.Context, kind, key string, rev int64) context.Context {
	c := &condition{object: kind + " " + fmt.Sprintf("%q", key), rev: store.Revision(rev)}
	c.row = read(rv.mu, func() string { return rv.written[writtenKeyOf(kind, key)].row })
	return context.WithValue(ctx, conditions{}, c)
}

// underCondition makes a transaction depend on the condition of its context.
func underCondition(ctx context.Context, update updater) updater {
	c, ok := ctx.Value(conditions{}).(*condition)
	if !ok || c.met {
		return update
	}
	return func(ctx context.Context, fn func(store.Tx) error) (store.Revision, error) {
		rev, err := update(ctx, func(tx store.Tx) error {
			if err := c.check(tx); err != nil {
				return err
			}
			return fn(tx)
		})
		c.met = c.met || err == nil
		return rev, err
	}
}

func (c *condition) check(tx store.Tx) error {
	if c.row == "" {
		return fmt.Errorf("%s: %w: it does not exist", c.object, ErrChanged)
	}
	kv, err := tx.Get(c.row)
	if err == nil && kv.Mod != c.rev {
		err = fmt.Errorf("%s: %w: it has revision %d, not %d; read it and try again", c.object, ErrChanged, kv.Mod, c.rev)
	}
	return err
}
