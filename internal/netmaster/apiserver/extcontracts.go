package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.ExtContractsGroup, model.ExtContractsKey, model.ExtContracts]{
	collection: "extContractsGroups", name: "extContractsGroup", access: ofTenants,
	key: model.ParseExtContractsKey, list: control.ExtContracts, get: control.ExtContractsGroup,
	parse: extContractsFromAPI, render: extContractsToAPI, linked: extContractsView,
	change: changeByValue(control.ChangeExtContracts), delete: byKey(control.DeleteExtContracts),
})

func extContractsFromAPI(o api.ExtContractsGroup) (e model.ExtContracts, err error) {
	e.Key = model.ExtContractsKey{Tenant: model.TenantName(o.TenantName), Name: o.ContractsGroupName}
	e.Type, e.Contracts = model.ContractsType(o.ContractsType), o.Contracts
	if len(e.Contracts) == 0 {
		e.Contracts = nil
	}
	return e, nil
}

func extContractsToAPI(e model.ExtContracts) api.ExtContractsGroup {
	return api.ExtContractsGroup{
		Key: e.Key.String(), Contracts: e.Contracts, ContractsGroupName: e.Key.Name,
		ContractsType: string(e.Type), TenantName: string(e.Key.Tenant),
	}
}

func extContractsView(v *control.View, e model.ExtContracts) api.ExtContractsGroup {
	o := extContractsToAPI(e)
	for _, g := range v.Groups.OfExtContracts(e.Key) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	return o
}
