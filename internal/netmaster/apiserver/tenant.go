package apiserver

import (
	"github.com/contiv/netplugin/v2/api"
	"github.com/contiv/netplugin/v2/internal/model"
	"github.com/contiv/netplugin/v2/internal/netmaster/access"
	"github.com/contiv/netplugin/v2/internal/netmaster/apiconv"
	"github.com/contiv/netplugin/v2/internal/netmaster/control"
)

var _ = register(kindSpec[api.Tenant, model.TenantName, model.Tenant]{
	collection: "tenants", name: "tenant", access: ofTenant,
	key: model.ParseTenantName, list: tenantList, get: getIn(viewTenants, (*control.TenantView).Get),
	parse: apiconv.Tenant, render: tenantToAPI, linked: tenantView,
	change: changeTenant, delete: byKey(control.DeleteTenant),
	oper: api.TenantOper{}, inspect: func(_ *serverContext, v *control.View, t model.Tenant) any { return tenantOper(v, t.Name) },
})

// ofTenant is for tenants: a tenant names networks of other tenants that it reaches, so
// only cluster administrators write it.
var ofTenant = kindAccess{list: ofTenants.list, get: ofTenantsForDocker.get, inspect: ofTenants.inspect, write: access.AdminOnly}

// tenantList returns a tenant, or all ("").
func tenantList(v *control.View, name model.TenantName) []model.Tenant {
	if name == "" {
		return v.Tenants.List()
	}
	if t, ok := v.Tenants.Get(name); ok {
		return []model.Tenant{t}
	}
	return nil
}

func changeTenant(_ *control.Controller, t model.Valid[model.Tenant], empty clearedFields) control.Change {
	return control.ChangeTenant(t, empty("defaultNetwork"))
}

func tenantToAPI(t model.Tenant) api.Tenant {
	o := api.Tenant{Key: string(t.Name), TenantName: string(t.Name), DefaultNetwork: string(t.DefaultNetwork), Owner: apiconv.Owner(t.Object)}
	for _, k := range t.Shared {
		o.SharedNetworks = append(o.SharedNetworks, k.String())
	}
	return o
}

func tenantView(v *control.View, t model.Tenant) api.Tenant {
	o := tenantToAPI(t)
	for _, n := range v.Networks.List(t.Name) {
		addLink(&o.LinkSets.Networks, "network", n.Key.String())
	}
	for _, g := range v.Groups.List(t.Name) {
		addLink(&o.LinkSets.EndpointGroups, "endpointGroup", g.Key.String())
	}
	for _, p := range v.Policies.ListContiv(t.Name) {
		addLink(&o.LinkSets.Policies, "policy", p.Key.String())
	}
	for _, p := range control.NetProfiles(v, t.Name) {
		addLink(&o.LinkSets.NetProfiles, "netprofile", p.Key.String())
	}
	for _, p := range v.Tenants.AppProfiles(t.Name) {
		addLink(&o.LinkSets.AppProfiles, "appProfile", p.Key.String())
	}
	for _, s := range v.Services.List(t.Name) {
		addLink(&o.LinkSets.Servicelbs, "serviceLB", s.Key.String())
	}
	return o
}

// tenantOper builds a tenant's operational state; what it nests carries no
// tags, as in 1.x.
func tenantOper(v *control.View, t model.TenantName) api.TenantOper {
	var o api.TenantOper
	for _, g := range v.Groups.List(t) {
		oper := groupOper(v, g)
		oper.GroupTag = ""
		o.EndpointGroups = append(o.EndpointGroups, oper)
	}
	for _, n := range v.Networks.List(t) {
		oper := networkOper(v, n)
		oper.NetworkTag = ""
		o.TotalEndpoints += oper.NumEndpoints
		o.Networks = append(o.Networks, oper)
	}
	for _, x := range v.Services.List(t) {
		o.Servicelbs = append(o.Servicelbs, serviceOper(v, x))
	}
	o.TotalServicelbs, o.TotalNetprofiles, o.TotalAppProfiles = len(o.Servicelbs), len(control.NetProfiles(v, t)), len(v.Tenants.AppProfiles(t))
	o.TotalEPGs, o.TotalNetworks, o.TotalPolicies = len(o.EndpointGroups), len(o.Networks), len(v.Policies.ListContiv(t))
	return o
}
