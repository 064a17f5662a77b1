package control

import (
	"context"
	"reflect"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

// AciFabric is how an ACI fabric is kept.
type AciFabric = tables.AciFabric

// NoteAciFabric changes, for the leader, what is noted of how the fabric is kept. That
// nothing differs is checked against the fence too: it is how a leader finds out that it
// leads no longer.
func (st *Settings) NoteAciFabric(ctx context.Context, l Leader, change func(*tables.AciFabric)) error {
	rev, err := st.commits.update(ctx, l.Actor(), "note how the ACI fabric is kept", func(tx store.Tx) error {
		row, err := tables.AciFabrics.Find(tx, tables.AciFabricKey{})
		if err != nil {
			return err
		}
		next := row.Value
		if change(&next); reflect.DeepEqual(next, row.Value) {
			tx.Touch(tables.AllocPrefix + "aci/") // what writes nothing is not fenced
			return nil
		}
		return tables.AciFabrics.Put(tx, next)
	})
	if err != nil {
		return err
	}
	return st.commits.follow.WaitFor(ctx, rev)
}

// FabricObjects is what an ACI fabric is made from.
type FabricObjects struct {
	Wanted   bool // the cluster's infrastructure type is aci
	Settings model.AciGw
	Profiles []model.AppProfile
	Groups   []model.Group
	Networks []model.Network
	External []model.ExtContracts
	Rules    []model.Rule // of Contiv policies
}

// FabricObjects returns all of one moment, but for rules, which are of that moment or
// later.
func (v *View) FabricObjects() FabricObjects {
	out := read(&v.mu, func() FabricObjects {
		f := FabricObjects{
			Settings: model.AciGw{EnforcePolicies: true}, // as when it is made without saying
			Profiles: v.Tenants.appProfileRows.listed(""), Groups: v.Groups.groupRows.listed(""),
			Networks: v.Networks.networkRows.listed(""), External: extContractsRows(v).listed(""),
		}
		f.Wanted = v.Settings.globalRows.all[tables.GlobalKey{}].Infra == model.InfraACI
		if g, there := v.Settings.aciGwRows.all[tables.AciGwKey{}]; there {
			f.Settings = g
		}
		return f
	})
	out.Rules = v.Policies.Rules("")
	return out
}

// fabricKinds are the kinds of FabricObjects.
var fabricKinds = map[string]bool{
	"global": true, "aciGw": true, "appProfile": true, "endpointGroup": true, "network": true, "extContractsGroup": true, "rule": true, "policy": true,
}
