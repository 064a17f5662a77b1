package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[tables.BgpKey](kind{name: "Bgp"})

// ChangeBgp creates a host's BGP settings or replaces them. The host must be one
// that an agent has told of (known fault 26): otherwise model.ErrNotFound.
func (st *Settings) ChangeBgp(valid model.Valid[model.Bgp]) Change {
	b := valid.Value()
	ch := changeOf(rankSettings, tables.Bgps, tables.BgpKey{Host: b.Host}, valid, func(ctx context.Context, tx store.Tx, _ *allocator) error {
		return st.putBgp(ctx, tx, b)
	})
	return ch
}

func (st *Settings) putBgp(ctx context.Context, tx store.Tx, b model.Bgp) error {
	k := tables.BgpKey{Host: b.Host}
	if err := tx.Prefetch(tables.Bgps.Key(k), tables.Hosts.Key(b.Host)); err != nil {
		return err
	}
	old, err := tables.Bgps.Find(tx, k)
	if err != nil {
		return err
	}
	if b.Password == model.PasswordKept {
		if b.Password = old.Value.Password; b.Password == "" {
			return model.InvalidField("password", model.PasswordKept, "stands for the one that is there, and there is none: give it")
		}
	}
	if old.Exists() && old.Value.Equal(b) {
		return nil
	}
	if !old.Exists() {
		h, err := tables.Hosts.Find(tx, b.Host)
		if err != nil {
			return err
		}
		if !h.Exists() {
			return model.Errorf(model.ErrNotFound, "hostname %q: the host does not exist: no netplugin has reported it yet", b.Host)
		}
		if yes, err := mayRoute(tx); err != nil {
			return err
		} else if yes {
			if others, err := announcesRoutes(tx); err != nil {
				return err
			} else if !others { // the first one
				if err := st.networks.checkAllDisjoint(ctx, tx); err != nil {
					return err
				}
			}
		}
	}
	return tables.Bgps.Put(tx, b)
}

// DeleteBgp deletes a host's BGP settings.
func DeleteBgp(h model.HostName) Deletion { return deleteRow(tables.Bgps, tables.BgpKey{Host: h}, nil) }
