package control

import (
	"fmt"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
)

// ErrChanged means that an object does not have the revision that a write of it asks for.
// It is of kind model.ErrConflict.
var ErrChanged = model.Errorf(model.ErrConflict, "it has changed")

// Condition is what a write of one object depends on: its first commit is made only while
// the object has a revision, else the error is ErrChanged.
type Condition struct {
	object string
	row    string // "" = the object is not there
	rev    store.Revision
}

// OnlyAt returns the condition that an object has a revision of Written. kind and key are as
// in Written.
func (rv *RevisionView) OnlyAt(kind, key string, rev int64) *Condition {
	return &Condition{
		object: kind + " " + fmt.Sprintf("%q", key), rev: store.Revision(rev),
		row: read(rv.mu, func() string { return rv.written[writtenKeyOf(kind, key)].row }),
	}
}

func (c *Condition) check(tx store.Tx) error {
	if c.row == "" {
		return fmt.Errorf("%s: %w: it does not exist", c.object, ErrChanged)
	}
	kv, err := tx.Get(c.row)
	if err == nil && kv.Mod != c.rev {
		err = fmt.Errorf("%s: %w: it has revision %d, not %d; read it and try again", c.object, ErrChanged, kv.Mod, c.rev)
	}
	return err
}
