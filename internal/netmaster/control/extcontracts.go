package control

import (
	"context"

	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var (
	extContractsRows = newRowsPart[model.ExtContractsKey, model.ExtContracts](func(k model.ExtContractsKey) model.TenantName { return k.Tenant }, func(a, b model.ExtContractsKey) int { return less(a.Tenant, b.Tenant, a.Name, b.Name) })

	_ = register(extContractsRows, nil, kind{
		name:  "extContractsGroup",
		empty: none(tables.ExtContracts, tables.ExtContractsOf, "groups of external contracts", func(x model.ExtContracts) string { return x.Key.Name }),
	})
)

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
func (v *View) ExtContracts(t model.TenantName) []model.ExtContracts {
	return extContractsRows.list(v, t)
}

// ExtContractsGroup finds a group of external contracts.
func (v *View) ExtContractsGroup(k model.ExtContractsKey) (model.ExtContracts, bool) {
	return extContractsRows.find(v, k)
}

// GroupsOfExtContracts returns the endpoint groups that name a group of
// external contracts.
func (v *View) GroupsOfExtContracts(k model.ExtContractsKey) []model.Group {
	return groupRows.of(v, func() map[model.GroupKey]struct{} { return groupsOfExtContracts.in(v)[k] })
}
