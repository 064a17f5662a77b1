package control

import (
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/store/tables"
)

var _ = register[model.ExtContractsKey](kind{
	name:  "extContractsGroup",
	empty: none(tables.ExtContracts, tables.ExtContractsOf, "groups of external contracts", func(x model.ExtContracts) string { return x.Key.Name }),
})

var extContractsRows = rowsOf[model.ExtContractsKey, model.ExtContracts](func(k model.ExtContractsKey) (model.TenantName, string) { return k.Tenant, k.Name })

// ExtContracts returns the groups of external contracts of a tenant, "" = of all.
func ExtContracts(v *View, t model.TenantName) []model.ExtContracts {
	return extContractsRows(v).list(t)
}

// ExtContractsGroup finds a group of external contracts.
func ExtContractsGroup(v *View, k model.ExtContractsKey) (model.ExtContracts, bool) {
	return extContractsRows(v).find(k)
}

// ChangeExtContracts creates a group of external contracts or replaces it.
func ChangeExtContracts(valid model.Valid[model.ExtContracts]) Change {
	return rowChange(valid.Value().Key.Tenant, tables.ExtContracts, valid)
}

// DeleteExtContracts deletes a group of external contracts that no endpoint
// group names: otherwise model.ErrInUse.
func DeleteExtContracts(k model.ExtContractsKey) Deletion {
	t := tables.TargetExtContracts(k)
	return deleteRow(tables.ExtContracts, k, &t)
}
