package control

import (
	"context"
	"reflect"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[tables.AciGwKey](kind{name: "aciGw"})

// ChangeAciGw sets the settings of the ACI fabric.
func ChangeAciGw(valid model.Valid[model.AciGw]) Change {
	g := valid.Value()
	ch := changeOf(rankSettings, tables.AciGws, tables.AciGwKey{}, valid, func(_ context.Context, tx store.Tx, _ *allocator) error {
		return putAciGw(tx, g)
	})
	return ch
}

func putAciGw(tx store.Tx, g model.AciGw) error {
	old, err := tables.AciGws.Find(tx, tables.AciGwKey{})
	if err != nil || old.Exists() && reflect.DeepEqual(old.Value, g) {
		return err
	}
	return tables.AciGws.Put(tx, g)
}

// DeleteAciGw deletes the settings of the ACI fabric.
func DeleteAciGw() Deletion {
	return inOne("delete aciGw", func(tx store.Tx, _ Actor) error {
		if _, err := tables.AciGws.Get(tx, tables.AciGwKey{}); err != nil {
			return err
		}
		tables.AciGws.Delete(tx, tables.AciGwKey{})
		return nil
	})
}
