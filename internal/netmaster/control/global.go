package control

import (
	"context"
	"fmt"
	"slices"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// Settings changes what the whole cluster has one of, and hosts' BGP settings, which its
// forwarding mode decides about. It has no state of its own.
type Settings struct {
	commits      *Committer
	settingsView *SettingsView
	filter       *LabelFilter
	networks     *Networks
}

var _ = register[tables.GlobalKey](kind{name: "global"})

// ChangeGlobal changes the settings that are set in g (zero fields stay as
// they are). The forwarding mode may change at any time (but see checkAllDisjoint), the ranges
// while every id in use stays inside, the label filter as long as it takes out no label that a
// policy selects by; the others change only while there is no network. Else it is
// model.ErrInUse.
func (st *Settings) ChangeGlobal(valid model.Valid[model.Global]) Change {
	g := valid.Value()
	ch := changeOf(rankGlobal, tables.Globals, tables.GlobalKey{}, valid, func(ctx context.Context, tx store.Tx, _ *allocator) error {
		old, err := tables.Globals.Get(tx, tables.GlobalKey{})
		if err != nil {
			return err
		}
		return st.putGlobal(ctx, tx, old, old.Merge(g))
	})
	ch.what = "update global"
	return ch
}

// DeleteGlobal sets all settings back to their defaults, under the same rules
// as ChangeGlobal and only while there is no network (known fault 8).
func (st *Settings) DeleteGlobal() Deletion {
	const what = "delete global"
	return Deletion{what: what, do: func(ctx context.Context, u *usecase) error {
		_, err := u.update(ctx, what, func(tx store.Tx) error {
			if err := checkUnlocked(tx, []string{tables.Globals.Key(tables.GlobalKey{})}, ""); err != nil { // also where nothing is written
				return err
			}
			old, err := tables.Globals.Get(tx, tables.GlobalKey{})
			if err != nil {
				return err
			}
			if n, any, err := tables.Numbers.Any(tx, tables.NumbersOf(tables.NumberNetwork)); err != nil {
				return err
			} else if any {
				return model.Errorf(model.ErrInUse, "networks use the settings, for one %s", ofNetwork(n))
			}
			return st.putGlobal(ctx, tx, old, model.DefaultGlobal())
		})
		return err
	}}
}

func (st *Settings) putGlobal(ctx context.Context, tx store.Tx, old, g model.Global) error {
	g.FormerLabels, g.CountedLabels = old.FormerLabels, old.CountedLabels
	if g.Equal(old) {
		return nil
	}
	if err := st.filter.changeFilter(ctx, tx, old, &g); err != nil {
		return err
	}
	for _, f := range []struct{ name, old, new string }{
		{"networkInfraType", string(old.Infra), string(g.Infra)},
		{"arpMode", string(old.ArpMode), string(g.ArpMode)},
		{"pvtSubnet", old.PvtSubnet.String(), g.PvtSubnet.String()},
	} {
		if f.old == f.new {
			continue
		}
		n, any, err := tables.Numbers.Any(tx, tables.NumbersOf(tables.NumberNetwork))
		if err != nil {
			return err
		}
		if any {
			return model.Errorf(model.ErrInUse, "%s %q: cannot change from %q while there are networks, for one %s", f.name, f.new, f.old, ofNetwork(n))
		}
	}
	if old.FwdMode != g.FwdMode && g.FwdMode == model.FwdRouting {
		if told, err := announcesRoutes(tx); err != nil {
			return err
		} else if told {
			if err := st.networks.checkAllDisjoint(ctx, tx); err != nil {
				return fmt.Errorf("fwdMode %q: %w", g.FwdMode, err)
			}
		}
	}
	if err := checkRange(tx, "vlans", tables.NumberVLAN, old.VLANs, g.VLANs); err != nil {
		return err
	}
	if err := checkRange(tx, "vxlans", tables.NumberVNI, old.VXLANs, g.VXLANs); err != nil {
		return err
	}
	if !slices.Equal(old.TenantPrefixes, g.TenantPrefixes) {
		if err := st.networks.withinPrefixes(ctx, tx, g.TenantPrefixes); err != nil {
			return err
		}
	}
	return tables.Globals.Put(tx, g)
}

// checkRange refuses a range that leaves out an id in use.
func checkRange(tx store.Tx, field string, kind tables.NumberKind, old, want model.TagRange) error {
	if want.Lo <= old.Lo && want.Hi >= old.Hi {
		return nil
	}
	used, err := tables.Numbers.List(tx, tables.NumbersOf(kind))
	if err != nil {
		return err
	}
	for _, n := range used {
		if !want.Contains(n.Number) {
			return model.Errorf(model.ErrInUse, "%s %q: must contain every id in use, and %d is used by %s", field, want, n.Number, tagOwner(n))
		}
	}
	return nil
}

// IntentChanged returns what is closed when the view gets other settings of the
// cluster, or a tenant comes, changes or goes.
func (st *Settings) IntentChanged() <-chan struct{} { return st.settingsView.intent.Next() }
