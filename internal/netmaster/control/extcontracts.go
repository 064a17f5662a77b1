package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.ExtContractsKey](kind{
	name:  "extContractsGroup",
	empty: none(tables.ExtContracts, tables.ExtContractsOf, "groups of external contracts", func(x model.ExtContracts) string { return x.Key.Name }),
})

// ChangeExtContracts creates a group of external contracts or replaces it.
func ChangeExtContracts(valid model.Valid[model.ExtContracts]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.ExtContracts, valid)
}

// DeleteExtContracts deletes a group of external contracts that no endpoint
// group names: otherwise model.ErrInUse.
func (ts *Tenants) DeleteExtContracts(ctx context.Context, k model.ExtContractsKey) error {
	t := tables.TargetExtContracts(k)
	return deleteRow(ctx, ts.commits, tables.ExtContracts, k, &t)
}

// ExtContracts returns groups of external contracts.
func (gv *GroupView) ExtContracts(t model.TenantName) []model.ExtContracts {
	return gv.extContractsRows.list(t)
}

// ExtContractsGroup finds a group of external contracts.
func (gv *GroupView) ExtContractsGroup(k model.ExtContractsKey) (model.ExtContracts, bool) {
	return gv.extContractsRows.find(k)
}

// GroupsOfExtContracts returns the endpoint groups that name a group of
// external contracts.
func (gv *GroupView) OfExtContracts(k model.ExtContractsKey) []model.Group {
	return gv.groupRows.those(func() map[model.GroupKey]struct{} { return gv.groupsOfExtContracts[k] })
}
