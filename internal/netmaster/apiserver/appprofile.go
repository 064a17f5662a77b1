package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.AppProfile, model.AppProfileKey, model.AppProfile]{
	collection: "appProfiles", name: "appProfile", access: ofTenants,
	key: model.ParseAppProfileKey, list: listIn(viewTenants, (*control.TenantView).AppProfiles), get: getIn(viewTenants, (*control.TenantView).AppProfile),
	parse: appProfileFromAPI, render: appProfileToAPI,
	change: changeAsIs(tenantUseCases, (*control.Tenants).ChangeAppProfile), delete: deleteFor(tenantUseCases, (*control.Tenants).DeleteAppProfile),
	oper: api.AppProfileOper{}, inspect: appProfileOper,
})

func appProfileFromAPI(o api.AppProfile) (p model.AppProfile, err error) {
	p.Key = model.AppProfileKey{Tenant: model.TenantName(o.TenantName), Name: o.AppProfileName}
	for _, g := range o.EndpointGroups {
		p.Groups = append(p.Groups, model.GroupName(g))
	}
	return p, nil
}

func appProfileToAPI(p model.AppProfile) api.AppProfile {
	o := api.AppProfile{
		Key: p.Key.String(), AppProfileName: p.Key.Name, TenantName: string(p.Key.Tenant),
		Links: api.AppProfileLinks{Tenant: tenantLink(p.Key.Tenant)},
	}
	for _, g := range p.Groups {
		o.EndpointGroups = append(o.EndpointGroups, string(g))
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", model.GroupKey{Tenant: p.Key.Tenant, Name: g}.String())
	}
	return o
}
